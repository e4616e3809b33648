"""What a large fleet learns from its panel, and what that makes of any device's own rows.

A fleet of more devices than its panel has learns all that devices have in common from those,
drawn by the seed: the rule runs on their rows as if there were no others (`linear_rule`). Every
device, in the panel or not, then gets its model from its own sums and from that, whoever else there
is and wherever its rows are. Time and memory grow with devices as slowly as they can.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from persfl.devices import Devices
from persfl.evaluation.row_course import found_order
from persfl.evaluation.row_order import RowOrder
from persfl.learners.shared_trees import SharedTrees
from persfl.methods.mixed.device_sums import DeviceSums, about_own_means
from persfl.methods.mixed.fleet_panel import sums_of_devices, told_by_others
from persfl.methods.mixed.likeness import FleetFacts, place_chances, same_place
from persfl.methods.mixed.linear_rule import SumsBlend, judged_offers, some_centres
from persfl.methods.mixed.mixed_model import Variances
from persfl.methods.mixed.near_centres import toward_centres
from persfl.methods.mixed.near_round import likeliest
from persfl.methods.mixed.offers_from_sums import SumOffers, decided_by_rows
from persfl.methods.mixed.own_noise import Noise
from persfl.methods.mixed.population import Population
from persfl.methods.mixed.principal_axes import PrincipalAxes
from persfl.types import Array, IntArray

BLOCK = 1024  # devices that are computed together


class ToldModels(NamedTuple):
    """What becomes of devices (n): `models` (n, columns) with the level first where there is one;
    `made_of` (n, 3) own rows, fleet, neighbours; of the likeliest centres their places `at`
    (n, named), how likely each is this device's centre, the chance that it is like it, and the mean
    squared errors of their models on its rows; and that of one model for all.
    """

    models: Array
    made_of: Array
    at: IntArray
    posterior: Array
    chance: Array
    missed: Array
    fleet_error: Array


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
    trees: tuple[tuple[float, SharedTrees], ...] = ()

    @staticmethod
    def of(known: SumsBlend, axes: PrincipalAxes) -> PanelKnowledge:
        """What the rule has found of the panel."""
        offers = known.offers
        d = offers.columns
        unknown = np.zeros((len(offers.names), d, d))
        for k, name in enumerate(offers.names):
            kind = offers.kind(name)
            if kind.loud:
                var = known.whole.learned[k].variances
                unknown[k] = kind.unknown_centre(known.sums, var)
        population = known.population(axes)
        close = known.whole.learned[offers.names.index("near")]
        alike = offers.likeness(known.sums, known.whole)
        spread = close.variances.Sigma
        same = same_place(population.centres, close.Sigma, spread)
        return PanelKnowledge(
            population=population,
            level=offers.level,
            names=known.names,
            shares=known.shares,
            spread=spread,
            unknown=unknown,
            facts=FleetFacts(same, alike.whole, alike.kinds),
            trees=known.shared_trees,
        )

    @property
    def axes(self) -> PrincipalAxes:
        """The columns that models are of."""
        axes = self.population.axes
        return PrincipalAxes(self.level, axes if axes.size else None)

    def told(self, sums: DeviceSums, centre: IntArray, named: int) -> ToldModels:
        """The models of these devices, from sums over their rows `axes.inside`; `centre` (n,) is
        the place of each among the centres, -1 for most.
        """
        places = np.arange(len(centre))
        blocks = [places[k : k + BLOCK] for k in range(0, len(places), BLOCK)]
        found = (
            self._told(sums_of_devices(sums, block), centre[block], named)
            for block in blocks
        )
        return ToldModels(*map(np.concatenate, zip(*found, strict=True)))

    def _told(self, sums: DeviceSums, centre: IntArray, named: int) -> ToldModels:
        linear = self.population.shares
        offers = list(self._offers(sums, centre))
        models = np.stack([offer.models for offer in offers])
        share = np.stack([offer.decided for offer in offers]) / models.shape[2]
        k = [offer.name for offer in offers].index("near")
        near = offers[k]
        own = linear @ share
        close = linear[k] * (1.0 - share[k])
        mine = np.arange(len(self.population.centres)) == centre[:, None]
        many = (~mine).sum(axis=1)
        about_all = self._about_all(sums, near.precision, k)
        chance = self.facts.chance(near.about_them, about_all, many)
        chance = np.where(mine, np.nan, chance)
        posterior = softmax(near.about_them, axis=1)
        at = likeliest(posterior, chance)[:, :named]
        missed = np.where(mine, np.inf, sums.missed(self.population.centres))
        return ToldModels(
            self.axes.outside(np.einsum("c,cnd->nd", linear, models)),
            np.stack([own, 1.0 - own - close, close], axis=1),
            at,
            np.take_along_axis(posterior, at, axis=1),
            np.take_along_axis(chance, at, axis=1),
            np.take_along_axis(missed, at, axis=1),
            sums.residual(models[0]) / sums.weight,
        )

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


class Panel(NamedTuple):
    """Who is in the panel, and who of them may be a centre; positions in the fleet, in order."""

    devices: IntArray
    centres: IntArray

    @staticmethod
    def drawn(n: int, seed: int, most: int) -> Panel:
        """By the seed alone.

        >>> panel = Panel.drawn(10_000, 0, 50)
        >>> len(panel.devices), panel.place_of(panel.centres[:2]).tolist()
        (50, [0, 1])
        """
        devices = some_centres(n, seed, most)
        return Panel(devices, devices[some_centres(len(devices), seed)])

    def place_of(self, devices: IntArray) -> IntArray:
        """The place of each of these devices among the centres, -1 for none."""
        at = np.searchsorted(self.centres, devices)
        at = np.minimum(at, len(self.centres) - 1)
        return np.where(self.centres[at] == devices, at, -1)


def learned_from_panel(
    rows: Devices,
    *,
    level: bool,
    seed: int,
    order: RowOrder | None = None,
    trees: bool = True,
) -> PanelKnowledge:
    """The rule on the rows of a panel, as if there were no others.

    >>> from persfl.sources import clustered_regression
    >>> rows = clustered_regression(n=30, clusters=2, rows=8, features=3, seed=0)
    >>> known = learned_from_panel(rows, level=True, seed=0)
    >>> Z = known.axes.inside(rows.X)
    >>> sums = DeviceSums.of(Z, rows.y, rows.weight, rows.start)
    >>> known.told(sums, np.arange(30), 5).models.shape
    (30, 4)
    """
    order = found_order(rows, order or RowOrder())
    known, axes = judged_offers(
        rows,
        level=level,
        seed=seed,
        order=order,
        trees=trees,
        panel=len(rows),
        strangers=True,
    )
    return PanelKnowledge.of(known, axes)
