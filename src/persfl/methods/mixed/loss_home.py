"""What devices do for a blend of counts or robust losses: they tell sums over their working rows,
at models that they are asked about. The coordinator does the rest (`loss_offers`, `loss_rule`).

In one process these are all devices of a fleet, over a federation each is alone with its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from persfl.devices import Devices
from persfl.learners.linear import Linear
from persfl.methods.mixed.hidden_evidence import HiddenEvidence
from persfl.methods.mixed.hidden_loss import HiddenLoss
from persfl.methods.mixed.hidden_rows import NEVER, PARTS, HiddenRows, folds_of
from persfl.methods.mixed.working_rows import LossSums, safe_part
from persfl.types import Array, IntArray


class AskedAt(NamedTuple):
    """Where sums are asked: for one of the copies of the rows (0 for all, k + 1 for those that fold
    k shows) on the way from models `start` to `end`, (n, d) both, as far as is safe.
    """

    copy: int
    start: Array
    end: Array
    reach: float


class ToldAt(NamedTuple):
    """Sums of every device, and how much of the way it has gone, (n,)."""

    sums: LossSums
    part: Array


Ask = Callable[[Sequence[AskedAt]], list[ToldAt]]


@dataclass(frozen=True, eq=False)
class LossHome:
    """Rows of some devices (`Z` as models see them), and which are hidden together."""

    rows: Devices
    Z: Array
    learner: Linear
    hidden: HiddenRows

    @staticmethod
    def alone(
        rows: Devices, Z: Array, learner: Linear, part: IntArray, *, ordered: bool
    ) -> LossHome:
        """One device, whose parts are hidden when everybody's are."""
        folds = folds_of(np.arange(PARTS + (NEVER in part)), ordered=ordered)
        return LossHome(rows, Z, learner, HiddenRows(part, folds))

    @cached_property
    def _shown(self) -> Array:
        """(copies, rows) 1 for rows that a copy has."""
        part, folds = self.hidden
        shown = [np.isin(part, fold.learn) for fold in folds]
        return np.stack([np.ones(len(part)), *shown]).astype(np.float64)

    def told(self, places: Sequence[AskedAt]) -> list[ToldAt]:
        """The sums at each of these."""
        return [self._told(place) for place in places]

    def _told(self, place: AskedAt) -> ToldAt:
        way = place.end - place.start
        steps = np.split(self._scores(way), self.rows.start[1:-1])
        part = np.array([safe_part(self.learner, step) for step in steps])
        score = self._scores(place.start + part[:, None] * way)
        weight = self.rows.weight * self._shown[place.copy]
        rows = self.rows.y, weight, self.rows.start
        return ToldAt(
            LossSums.of(self.learner, self.Z, score, *rows, place.reach), part
        )

    def _scores(self, models: Array) -> Array:
        """(rows,) of models (n, d)."""
        return np.asarray((self.Z * models[self.rows.owner]).sum(axis=1))

    def judged(self, folds: Sequence[Array], calm: Array, reach: float) -> HiddenLoss:
        """What offers (offers, n, d) of each fold leave of the rows that it hides; `calm` (n,) is
        how much a row of each device counts.
        """
        plain = HiddenEvidence.of(self.rows, self.Z, self.hidden, folds, calm)
        return HiddenLoss.under(self.learner, plain, self.rows.y, reach)
