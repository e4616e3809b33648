"""What a large fleet learns from its panel, and what that makes of any device's own rows.

A fleet of more devices than its panel has learns all that devices have in common from those,
drawn by the seed: the rule runs on their rows as if there were no others (`panel_rule`). Every
device, in the panel or not, then gets its model from its own sums and from that, whoever else there
is and wherever its rows are. Time and memory grow with devices as slowly as they can.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from persfl.learners.shared_trees import WeighedTrees
from persfl.methods.mixed.device_sums import DeviceSums, about_own_means
from persfl.methods.mixed.fleet_panel import sums_of_devices, told_by_others
from persfl.methods.mixed.latest_rows import (
    GOING_ON,
    LatestRows,
    decided_where_moved,
)
from persfl.methods.mixed.likeness import FleetFacts, place_chances
from persfl.methods.mixed.mixed_model import Variances
from persfl.methods.mixed.near_centres import toward_centres
from persfl.methods.mixed.near_round import likeliest
from persfl.methods.mixed.offers_from_sums import SumOffers, decided_by_rows
from persfl.methods.mixed.own_noise import Noise
from persfl.methods.mixed.population import Population
from persfl.methods.mixed.principal_axes import PrincipalAxes
from persfl.methods.mixed.told_models import ToldModels
from persfl.types import Array, IntArray

BLOCK = 1024  # devices that are computed together


@dataclass(frozen=True, eq=False)
class PanelKnowledge:
    """What the panel knows. `names` and `shares` are of all offers, trees too."""

    population: Population
    level: bool
    names: tuple[str, ...]
    shares: Array
    spread: Array
    """(columns, columns) how much devices differ, all of them about one centre."""
    unknown: Array
    """(offers, columns, columns) how far the centre of each offer is known."""
    facts: FleetFacts
    trees: WeighedTrees = ()

    @property
    def axes(self) -> PrincipalAxes:
        """The columns that models are of."""
        axes = self.population.axes
        return PrincipalAxes(self.level, axes if axes.size else None)

    @property
    def going_on(self) -> Array:
        """(offers,) the shares of those that go on from the latest row."""
        share = dict(zip(self.names, self.shares.tolist(), strict=True))
        names = self.population.names.tolist()
        return np.array([share.get(name + GOING_ON, 0.0) for name in names])

    def told(
        self, sums: DeviceSums, latest: LatestRows, centre: IntArray, named: int
    ) -> ToldModels:
        """The models of these devices, from sums over their rows `axes.inside` and the latest of
        these; `centre` (n,) is the place of each among the centres, -1 for most.
        """
        places = np.arange(len(centre))
        blocks = [places[k : k + BLOCK] for k in range(0, len(places), BLOCK)]
        found = (
            self._told(
                sums_of_devices(sums, block), latest.at(block), centre[block], named
            )
            for block in blocks
        )
        return ToldModels(*map(np.concatenate, zip(*found, strict=True)))

    def _told(
        self, sums: DeviceSums, latest: LatestRows, centre: IntArray, named: int
    ) -> ToldModels:
        moves = self.going_on
        stays = self.population.shares - moves
        offers = list(self._offers(sums, centre))
        models = np.stack([offer.models for offer in offers])
        mixed = np.einsum("c,cnd->nd", stays, models)
        decided = np.stack([offer.decided for offer in offers])
        columns = models.shape[2]
        share = decided / columns
        moved = decided_where_moved(decided, columns) / columns
        k = [offer.name for offer in offers].index("near")
        near = offers[k]
        own = stays @ share
        close = stays[k] * (1.0 - share[k])
        if moves.any():
            mixed += np.einsum("c,cnd->nd", moves, latest.moved(models))
            own += moves @ moved
            close += moves[k] * (1.0 - moved[k])
        return ToldModels(
            self.axes.outside(mixed),
            np.stack([own, 1.0 - own - close, close], axis=1),
            *self._named(sums, near, k, centre, named),
            sums.residual(models[0]) / sums.weight,
        )

    def _named(
        self, sums: DeviceSums, near: _Offer, k: int, centre: IntArray, named: int
    ) -> tuple[IntArray, Array, Array, Array]:
        """Of so many of the likeliest centres: their places, how likely each is a device's own, the
        chance that it is like it, and the errors of their models.
        """
        if not named:
            none = np.zeros((len(centre), 0))
            return none.astype(np.int64), none, none, none
        mine = np.arange(len(self.population.centres)) == centre[:, None]
        many = (~mine).sum(axis=1)
        about_all = self._about_all(sums, near.precision, k)
        chance = self.facts.chance(near.about_them, about_all, many)
        chance = np.where(mine, np.nan, chance)
        posterior = softmax(near.about_them, axis=1)
        at = likeliest(posterior, chance)[:, :named]
        missed = np.where(mine, np.inf, sums.missed(self.population.centres))
        likely = np.take_along_axis(posterior, at, axis=1)
        alike = np.take_along_axis(chance, at, axis=1)
        return at, likely, alike, np.take_along_axis(missed, at, axis=1)

    def _offers(self, sums: DeviceSums, centre: IntArray) -> Iterator[_Offer]:
        """What is offered to these devices; the first is one model for all."""
        told = self.population
        n, d = sums.product.shape
        nobody = np.arange(0)
        kinds = SumOffers(d, self.level, nobody, nobody)
        for k, name in enumerate(kinds.names):
            kind = kinds.kind(name)
            used, back = sums, None
            if name == "centred level":
                used, back = about_own_means(sums)
            F = kind.random
            Sigma = told.Sigma[k][F[:, None], F]
            usual = float(told.usual[k])
            noise = Noise(usual, np.full(n, usual), float(told.alike[k]))
            apart = self.spread if name == "near" else Sigma
            var = Variances(apart, noise, 1.0, told.centre[k])
            models, var = told_by_others(kind, used, var, self.unknown[k])
            precision = var.noise.each
            about_them = np.zeros((n, 0))
            if back is not None:
                models = np.einsum("nji,nj->ni", back, models)
            if name == "near":
                W = told.centres
                about_them = place_chances(sums, precision, W, Sigma)
                mine = np.flatnonzero(centre >= 0)
                about_them[mine, centre[mine]] = -np.inf
                mean = softmax(about_them, axis=1) @ W
                models = toward_centres(sums, precision, mean, Sigma)
            decided = decided_by_rows(used, F, Sigma, precision)
            yield _Offer(name, models, precision, decided, about_them)

    def _about_all(self, sums: DeviceSums, precision: Array, near: int) -> Array:
        """(n,) how likely rows are where all devices are about one centre."""
        centre = self.population.centre[near][None]
        return place_chances(sums, precision, centre, self.spread)[:, 0]


class _Offer(NamedTuple):
    """One offer to some devices: models, noise, how many coefficients own rows decide, and, of
    near, how likely their rows are about each centre.
    """

    name: str
    models: Array
    precision: Array
    decided: Array
    about_them: Array
