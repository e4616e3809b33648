"""What blend offers a device for squared loss: mixed models, each with another idea of what is
personal.

    pooled           one model for all
    level            one model for all, and an own level
    centred level    the same, with columns about the device's own means: effects within devices
    diagonal         every coefficient is personal, as far as devices differ in it
    near             every other device may be the centre of a device's model (`near_centres`)

Of rows in the order of time each is offered once more, going on from the latest row
(`latest_rows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from persfl.methods.mixed.device_sums import DeviceSums, about_own_means
from persfl.methods.mixed.fleet_panel import panel_fit, panel_near
from persfl.methods.mixed.latest_rows import (
    GOING_ON,
    LatestRows,
    decided_where_moved,
)
from persfl.methods.mixed.likeness import Likeness, chance_of_one, likeness
from persfl.methods.mixed.mixed_model import FOLD_STEPS, STEPS, MixedModel, Variances
from persfl.methods.mixed.near_centres import STEPS as NEAR_STEPS
from persfl.types import Array, IntArray


def offer_names(level: bool) -> tuple[str, ...]:
    """What offers are called, in order."""
    levels = ("level", "centred level") if level else ()
    return ("pooled", *levels, "diagonal", "near")


class Learned(NamedTuple):
    """What an offer learned of the fleet; `Sigma` is that of near, about a centre."""

    variances: Variances
    Sigma: Array


class Offered(NamedTuple):
    """`models` (offers, n, d); `learned` of each; the posterior (n, centres) of near; how many
    coefficients of each offer's model own rows decide, (offers, n), and which share that is.
    """

    models: Array
    learned: tuple[Learned, ...]
    posterior: Array
    decided: Array
    own: Array

    def optimism(self, noise: Array) -> Array:
        """(offers, offers) by how much products of residuals are too small on rows that offers have
        seen (Mallows): each device's noise, times the coefficients that its own rows decide.
        """
        known = self.decided @ noise
        return np.asarray(known[:, None] + known[None, :])

    def going_on(self, latest: LatestRows) -> Offered:
        """With each of them once more, moved to where the latest row is."""
        columns = self.models.shape[2]
        decided = decided_where_moved(self.decided, columns)
        decided = np.concatenate([self.decided, decided])
        return self._replace(
            models=np.concatenate([self.models, latest.moved(self.models)]),
            decided=decided,
            own=decided / columns,
        )


class OneOffer(NamedTuple):
    """As `Offered`, of one of them."""

    models: Array
    learned: Learned
    posterior: Array
    decided: Array


@dataclass(frozen=True, eq=False)
class SumOffers:
    """The offers for models of `columns` columns, the first of which may be the level.

    `centres` are the devices that may be somebody's centre; of the devices of `panel` is learned
    what the fleet has in common.
    """

    columns: int
    level: bool
    centres: IntArray
    panel: IntArray

    @property
    def names(self) -> tuple[str, ...]:
        """What offers are called, in order."""
        return offer_names(self.level)

    @property
    def names_going_on(self) -> tuple[str, ...]:
        """The same, then those that go on from the latest row."""
        return (*self.names, *(name + GOING_ON for name in self.names))

    def kind(self, name: str) -> MixedModel:
        """What is personal in this offer."""
        every = np.arange(self.columns)
        if name == "pooled":
            return MixedModel(every[:0], level=self.level)
        if name in ("level", "centred level"):
            return MixedModel(every[:1])
        full = name == "near"
        return MixedModel(every, full=full, loud=True, level=self.level)

    def fit(
        self, sums: DeviceSums, before: tuple[Learned, ...] | None = None
    ) -> Offered:
        """Offers from these sums, going on from what was learned before."""
        known = before or [None] * len(self.names)
        found = [
            self.one(name, sums, each)
            for name, each in zip(self.names, known, strict=True)
        ]
        return self.offered(found)

    def offered(self, found: Sequence[OneOffer]) -> Offered:
        """All offers, side by side."""
        decided = np.stack([each.decided for each in found])
        return Offered(
            np.stack([each.models for each in found]),
            tuple(each.learned for each in found),
            found[self.names.index("near")].posterior,
            decided,
            decided / self.columns,
        )

    def one(
        self,
        name: str,
        sums: DeviceSums,
        before: Learned | None,
        most: int = STEPS,
    ) -> OneOffer:
        """The offer of this name, by so many steps at most."""
        kind = self.kind(name)
        posterior = np.zeros((len(sums.weight), len(self.centres)))
        used, back = sums, None
        if name == "centred level":
            used, back = about_own_means(sums)
        known = before.variances if before else None
        many = min(most, FOLD_STEPS if before else STEPS)
        models, var = panel_fit(kind, used, self.panel, known, many)
        Sigma = var.Sigma
        if name == "near" and len(self.centres) > 1:
            Sigma = before.Sigma if before else var.Sigma / 2
            many = min(most, NEAR_STEPS)
            close = panel_near(sums, var.noise.each, models, Sigma, self.centres, many)
            models, posterior, Sigma = close
        decided = decided_by_rows(used, kind.random, Sigma, var.noise.each)
        if back is not None:
            models = np.einsum("nji,nj->ni", back, models)
        return OneOffer(models, Learned(var, Sigma), posterior, decided)

    def likeness(self, sums: DeviceSums, found: Offered) -> Likeness:
        """Who is like whom, by what these offers learned."""
        k = self.names.index("near")
        one, spread = (
            found.learned[self.names.index(name)].variances
            for name in ("pooled", "diagonal")
        )
        # by the noise of spread: how noise differs tells nothing of models
        alike = one._replace(noise=spread.noise)
        whole = chance_of_one(
            self.kind("pooled").log_likelihood(sums, alike),
            self.kind("diagonal").log_likelihood(sums, spread),
            self.columns,
        )
        if len(self.centres) < 2:
            nobody = np.full((len(sums.weight), len(self.centres)), np.nan)
            return Likeness(nobody, whole, False)
        return likeness(
            sums,
            found.models[k],
            self.centres,
            found.learned[k].variances,
            found.learned[k].Sigma,
            whole,
            self.level,
        )


def decided_by_rows(
    sums: DeviceSums, F: IntArray, Sigma: Array, precision: Array
) -> Array:
    """(n,) how many coefficients of a personal model its own rows decide: the trace of V t G."""
    if not len(F):
        return np.zeros(len(precision))
    G = precision[:, None, None] * sums.square[:, F[:, None], F]
    known = np.linalg.solve(G + np.linalg.inv(Sigma), G)
    return np.asarray(np.trace(known, axis1=1, axis2=2))
