"""What blend offers a device for squared loss: mixed models, each with another idea of what is
personal.

    pooled           one model for all
    level            one model for all, and an own level
    centred level    the same, with columns about the device's own means: effects within devices
    diagonal         every coefficient is personal, as far as devices differ in it
    near             every other device may be the centre of a device's model (`near_centres`)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from persfl.methods.mixed.device_sums import DeviceSums, about_own_means
from persfl.methods.mixed.fleet_panel import panel_fit, panel_near
from persfl.methods.mixed.likeness import Likeness, chance_of_one, likeness
from persfl.methods.mixed.mixed_model import FOLD_STEPS, STEPS, MixedModel, Variances
from persfl.methods.mixed.near_centres import FOLD_STEPS as NEAR_FOLD_STEPS
from persfl.methods.mixed.near_centres import STEPS as NEAR_STEPS
from persfl.types import Array, IntArray


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
        levels = ("level", "centred level") if self.level else ()
        return ("pooled", *levels, "diagonal", "near")

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
        models = []
        learned = []
        decided = []
        own = []
        posterior = np.zeros((len(sums.weight), len(self.centres)))
        for k, name in enumerate(self.names):
            kind = self.kind(name)
            used, back = sums, None
            if name == "centred level":
                used, back = about_own_means(sums)
            known = before[k].variances if before else None
            many = FOLD_STEPS if before else STEPS
            found, var = panel_fit(kind, used, self.panel, known, many)
            Sigma = var.Sigma
            if name == "near" and len(self.centres) > 1:
                Sigma = before[k].Sigma if before else var.Sigma / 2
                many = NEAR_FOLD_STEPS if before else NEAR_STEPS
                close = panel_near(
                    sums, var.noise.each, found, Sigma, self.centres, many
                )
                found, posterior, Sigma = close
            decided.append(decided_by_rows(used, kind.random, Sigma, var.noise.each))
            own.append(decided[-1] / self.columns)
            if back is not None:
                found = np.einsum("nji,nj->ni", back, found)
            models.append(found)
            learned.append(Learned(var, Sigma))
        told = np.stack(models), tuple(learned), posterior
        return Offered(*told, np.stack(decided), np.stack(own))

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
