"""The offers of `offers_from_sums` for counts and robust losses: mixed models of working rows.

Every offer has working rows of its own, at its own scores: rows that are far from one model may be
near another. They are made again until scores stay. Counts begin at one model for all with a level
for each device that its own rows tell, since from a rate that is far too low a step goes much too
far; and no device goes further at once than is safe (`safe_part`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from persfl.devices import Devices
from persfl.learners.linear import Linear
from persfl.methods.mixed.device_sums import DeviceSums
from persfl.methods.mixed.offers_from_sums import (
    Learned,
    Offered,
    OneOffer,
    SumOffers,
)
from persfl.methods.mixed.working_rows import (
    ROUNDS,
    safe_part,
    usual_score,
    working_rows,
)
from persfl.types import Array

STEPS = 3  # of Sigma in a round: it goes on in the next one
SETTLED = 1e-2  # scores that move by a smaller share of their noise stay


@dataclass(frozen=True, eq=False)
class LossOffers:
    """Offers for these rows (`Z` as models see them), under the learner's loss."""

    rows: Devices
    Z: Array
    learner: Linear
    offers: SumOffers

    def fit(self, weight: Array, before: Sequence[Learned] | None = None) -> Offered:
        """From rows that weigh so much, going on from variances that were learned before. Scores
        begin anew, so that nothing is known of rows that weigh nothing.
        """
        found: list[OneOffer] = []
        for k, name in enumerate(self.offers.names):
            each = before[k] if before else None
            start = self._begin(weight) if not found else found[0].models
            if found and self.learner.kind == "poisson" and self.learner.intercept:
                start = self._own_levels(start, weight)
            found.append(self._settled(name, start, weight, each))
        return self.offers.offered(found)

    def scores(self, models: Array) -> Array:
        """(rows,) of models (n, d)."""
        return np.asarray((self.Z * models[self.rows.owner]).sum(axis=1))

    def sums(self, models: Array, weight: Array) -> DeviceSums:
        """Working sums at these models (n, d)."""
        y = self.rows.y
        made = working_rows(self.learner, self.scores(models), y, weight)
        return made.sums(self.Z, weight, self.rows.start)

    def _begin(self, weight: Array) -> Array:
        models = np.zeros((len(self.rows), self.Z.shape[1]))
        if self.learner.kind == "poisson" and self.learner.intercept:
            models[:, 0] = usual_score(self.rows.y, weight)
        return models

    def _own_levels(self, models: Array, weight: Array) -> Array:
        """With levels that each device's counts tell, beside one row's worth of the usual."""
        many = len(self.rows)
        score = np.clip(self.scores(models), -50.0, 50.0)
        owner = self.rows.owner
        said = np.bincount(owner, weights=weight * np.exp(score), minlength=many)
        there = np.bincount(owner, weights=weight * self.rows.y, minlength=many)
        usual = np.exp(usual_score(self.rows.y, weight))
        found = models.copy()
        found[:, 0] += np.log((there + usual) / (said + usual))
        return found

    def _settled(
        self, name: str, start: Array, weight: Array, learned: Learned | None
    ) -> OneOffer:
        """One offer, where its working rows stay."""
        here = _Place(start, self.scores(start))
        for _ in range(ROUNDS):
            found = self.offers.one(
                name, self.sums(here.models, weight), learned, STEPS
            )
            learned = found.learned
            new = self._moved(here, found.models)
            away = float(weight @ (new.score - here.score) ** 2)
            noise = learned.variances.noise.usual
            here = new
            if noise * away <= SETTLED**2 * float(weight.sum()):
                break
        return found._replace(models=here.models)

    def _moved(self, here: _Place, models: Array) -> _Place:
        """On the way to these models, each device as far as is safe."""
        step = self.scores(models) - here.score
        each = np.split(step, self.rows.start[1:-1])
        part = np.array([safe_part(self.learner, one) for one in each])
        models = here.models + part[:, None] * (models - here.models)
        return _Place(models, self.scores(models))


class _Place(NamedTuple):
    """Models (n, d), and their scores (rows,)."""

    models: Array
    score: Array
