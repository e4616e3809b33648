"""Hidden rows as evidence for counts and robust losses: shares and trees by the learner's loss.

What an offer leaves of a label is here the label less its *score*, which of counts is the logarithm
of a rate. So scores of offers are mixed, and trees add to scores:

    counts              trees of y / exp(score) under Poisson's loss, rows weighing exp(score), are
                        those of y with the score as an offset
    huber, absolute     trees of what is left, under absolute loss
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from persfl.devices import Devices
from persfl.learners.linear import Linear
from persfl.learners.shared_trees import SharedTrees
from persfl.methods.mixed.grown_trees import grow
from persfl.methods.mixed.hidden_evidence import HiddenEvidence
from persfl.methods.mixed.stacking import shares_of
from persfl.methods.mixed.working_rows import FAR, usual_score, working_rows
from persfl.types import Array, IntArray, Mask

ROUNDS = 30  # of shares and working rows by turns
SETTLED = 1e-4  # shares that move by less stay


@dataclass(frozen=True, eq=False)
class HiddenLoss(HiddenEvidence):
    """As `HiddenEvidence`, under the loss of `learner`; `y` are the labels of all rows."""

    learner: Linear
    y: Array

    @staticmethod
    def under(learner: Linear, rows: HiddenEvidence, y: Array) -> HiddenLoss:
        """The same rows under this loss."""
        parts = {each.name: getattr(rows, each.name) for each in fields(rows)}
        return HiddenLoss(**parts, learner=learner, y=y)

    @property
    def score(self) -> Array:
        """(hidden rows, offers)"""
        return np.asarray(self.y[self.row, None] - self.left)

    def once_a_key(self, keys: IntArray, offer: int) -> HiddenLoss:
        """By what working rows leave."""
        score = self.score[:, offer]
        made = working_rows(self.learner, score, self.y[self.row], self.weight)
        left = np.sqrt(made.weight) * (made.label - score)
        plain = HiddenEvidence(
            self.fold, self.row, self.owner, self.plain, self.weight, left[:, None]
        ).once_a_key(keys, 0)
        return replace(self, plain=plain.plain, weight=plain.weight)

    def grown(
        self, rows: Devices, start: int, learn: Mask, strangers: bool = False
    ) -> SharedTrees:
        """Trees that add to scores."""
        counts = self.learner.kind == "poisson"
        loss = "poisson" if counts else "absolute_error"
        if start < 0:
            return grow(
                rows, np.flatnonzero(learn), rows.y[learn], strangers, loss=loss
            )
        seen = learn[self.row]
        which = self.row[seen]
        if not counts:
            return grow(rows, which, self.left[seen, start], strangers, loss=loss)
        usual = usual_score(rows.y[which], rows.weight[which])
        rate = np.exp(np.clip(self.score[seen, start], usual - FAR, usual + FAR))
        weight = rows.weight[which] * rate
        y = rows.y[which] / rate
        return grow(rows, which, y, strangers, loss=loss, weight=weight)

    def shares(self, simplest: int) -> Array:
        """Of each offer: as `shares_of`, of working rows at the scores of the mix, until shares
        stay.
        """
        score = self.score
        y = self.y[self.row]
        rows = float(self.weight.sum())
        shares = shares_of(np.zeros((score.shape[1],) * 2), 0.0, simplest)
        if not rows > 0:
            return shares
        for _ in range(ROUNDS):
            made = working_rows(self.learner, score @ shares, y, self.weight)
            left = made.label[:, None] - score
            crossed = (left * (self.weight * made.weight)[:, None]).T @ left
            new = shares_of(crossed, rows, simplest)
            # half of the way: working rows of a mix and its shares may take turns for ever
            new = (shares + new) / 2
            moved = float(np.abs(new - shares).max())
            shares = new
            if moved < SETTLED:
                break
        return shares
