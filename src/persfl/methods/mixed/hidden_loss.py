"""Hidden rows as evidence for counts and robust losses: shares and trees by the learner's loss.

What an offer leaves of a label is here the label less its *score*, which of counts is the logarithm
of a rate. So scores of offers are mixed, and trees add to scores:

    counts              trees of y / exp(score) under Poisson's loss, rows weighing exp(score), are
                        those of y with the score as an offset
    huber, absolute     trees of what is left, under absolute loss

Shares are least squares of working rows at the scores of the mix, whose labels are what each offer
leaves of them; and again, until shares stay. With D the scores of the mix less those of the offers
and r what working rows are away from the mix, products of what offers leave are

    Q  =  sum of weight * (D_j + r) (D_k + r)  =  D'D + D'r 1' + 1 r'D + r'r

so hidden rows enter by sums of D and r, and may be at home at devices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np

from persfl.devices import Devices
from persfl.learners.linear import Linear
from persfl.learners.shared_trees import SharedTrees
from persfl.methods.mixed.device_sums import DeviceSums
from persfl.methods.mixed.grown_trees import grow
from persfl.methods.mixed.hidden_evidence import HiddenEvidence
from persfl.methods.mixed.stacking import shares_of
from persfl.methods.mixed.working_rows import (
    FAR,
    LossSums,
    left_rows,
    next_reach,
    usual_score,
)
from persfl.types import Array, IntArray, Mask

ROUNDS = 12  # of shares and working rows by turns
SETTLED = 1e-3  # shares that move by less stay

Asked = Callable[[Array, float], LossSums]


def shares_by_turns(
    ask: Asked, learner: Linear, offers: int, reach: float, simplest: int
) -> Array:
    """(offers,) of each offer, from what hidden rows tell at shares that they are asked about;
    `reach` is that of one model for all.
    """
    shares = shares_of(np.zeros((offers, offers)), 0.0, simplest)
    way = np.zeros(offers)
    for _ in range(ROUNDS):
        sums = ask(shares, reach).left(learner, reach)
        rows = float(sums.weight.sum())
        if not rows > 0:
            break
        crossed = crossed_of(sums)
        noise = rows / max(float(shares @ crossed @ shares), 1e-300)
        # only ever less, or it and shares take turns
        reach = min(reach, next_reach(learner, reach, noise))
        new = shares_of(crossed, rows, simplest) - shares
        # half of a way back: working rows of a mix and its shares may take turns for ever
        way = new / 2 if new @ way < 0 else new
        shares = shares + way
        if float(np.abs(way).max()) < SETTLED:
            break
    return shares


def crossed_of(sums: DeviceSums) -> Array:
    """(offers, offers) products of what offers leave of hidden rows, from sums of D and r."""
    side = sums.product.sum(axis=0)
    both = sums.square.sum(axis=0) + sums.label.sum()
    return np.asarray(both + side[:, None] + side[None, :])


@dataclass(frozen=True, eq=False)
class HiddenLoss(HiddenEvidence):
    """As `HiddenEvidence`, under the loss of `learner`; `y` are the labels of all rows, `reach` is
    that of one model for all.
    """

    learner: Linear
    y: Array
    reach: float

    @staticmethod
    def under(
        learner: Linear, rows: HiddenEvidence, y: Array, reach: float
    ) -> HiddenLoss:
        """The same rows under this loss."""
        parts = {each.name: getattr(rows, each.name) for each in fields(rows)}
        return HiddenLoss(**parts, learner=learner, y=y, reach=reach)

    @property
    def score(self) -> Array:
        """(hidden rows, offers)"""
        return np.asarray(self.y[self.row, None] - self.left)

    def once_a_key(self, keys: IntArray, offer: int) -> HiddenLoss:
        """By what working rows leave."""
        score = self.score[:, offer]
        made = left_rows(self.learner, score, self.y[self.row], self.reach)
        left = np.sqrt(made.curve) * made.left
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
        weight = rows.weight[which]
        usual = usual_score(float(rows.y[which] @ weight), float(weight.sum()))
        rate = np.exp(np.clip(self.score[seen, start], usual - FAR, usual + FAR))
        y = rows.y[which] / rate
        return grow(rows, which, y, strangers, loss=loss, weight=weight * rate)

    def sums(self, shares: Array, reach: float) -> LossSums:
        """Of scores of the mix less those of each offer, and what is left at the mix."""
        score = self.score
        mix = score @ shares
        every = np.array([0, len(mix)])
        rows = self.y[self.row], self.weight, every
        return LossSums.of(self.learner, mix[:, None] - score, mix, *rows, reach)

    def shares(self, simplest: int) -> Array:
        """Of each offer."""
        offers = self.left.shape[1]
        return shares_by_turns(self.sums, self.learner, offers, self.reach, simplest)
