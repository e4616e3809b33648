"""Hidden rows, and what each offer leaves of them: the evidence for shares.

Rows of one date say nearly the same at many devices, and many of them are no more evidence than a
few. How much less is told by the rows: with q what a row's squared residual is above the mean, the
sum of q over the rows of a date varies

    effect = sum over dates of (sum of q)^2 / sum over rows of q^2

(corrected for the mean, which is that of the same rows) times as much as if they knew nothing of
each other, and each row counts for that much less.

Shares are found twice. First rows of loud devices count for less: noise then misleads nobody. But
devices may seem loud that only have large labels (counts, incomes), and an offer that is bad for
them is bad in all, since squared errors are mostly theirs. So shares are found again by plain
squared errors, drawn to those of before. These are worth as many rows as there are devices that
they are spread over, hidden part by hidden part, and only as far as they had not counted before:
with q the errors of a device in a part,

    rows = (sum of q)^2 / sum of q^2 * share of the errors that had not counted
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from persfl.devices import Devices
from persfl.learners.shared_trees import SharedTrees
from persfl.methods.mixed.grown_trees import grow
from persfl.methods.mixed.hidden_rows import HiddenRows
from persfl.methods.mixed.stacking import drawn_shares, shares_of
from persfl.types import Array, IntArray, Mask


@dataclass(frozen=True, eq=False)
class HiddenEvidence:
    """Hidden rows, all folds behind each other: which they are, what each offer leaves of them.

    `plain` is what rows weigh, `weight` what they count for: less, at loud devices.
    """

    fold: IntArray
    row: IntArray
    owner: IntArray
    plain: Array
    weight: Array
    left: Array  # (hidden rows, offers)

    @staticmethod
    def of(
        rows: Devices,
        Z: Array,
        hidden: HiddenRows,
        models: Sequence[Array],
        calm: Array,
    ) -> HiddenEvidence:
        """What linear offers leave: `models` (offers, n, d) of each fold; `calm` (n,) is how much
        a row of each device counts.
        """
        found = []
        for k, (fold, offers) in enumerate(zip(hidden.folds, models, strict=True)):
            row = np.flatnonzero(np.isin(hidden.part, fold.judge))
            owner = rows.owner[row]
            said = np.einsum("rj,crj->rc", Z[row], offers[:, owner])
            plain = rows.weight[row]
            left = rows.y[row, None] - said
            every = np.full(len(row), k)
            found.append((every, row, owner, plain, plain * calm[owner], left))
        return HiddenEvidence(
            *(np.concatenate(each) for each in zip(*found, strict=True))
        )

    def at(self, fold: int) -> HiddenEvidence:
        """Of this fold alone."""
        return self._of(self.fold == fold)

    def first(self, folds: int) -> HiddenEvidence:
        """Of so many folds."""
        return self._of(self.fold < folds)

    def _of(self, which: Mask) -> HiddenEvidence:
        return replace(
            self,
            fold=self.fold[which],
            row=self.row[which],
            owner=self.owner[which],
            plain=self.plain[which],
            weight=self.weight[which],
            left=self.left[which],
        )

    def also(self, left: Array) -> HiddenEvidence:
        """With more offers."""
        return replace(self, left=np.column_stack([self.left, left]))

    def once_a_key(self, keys: IntArray, offer: int) -> HiddenEvidence:
        """With rows that count for less as far as those of one key say the same of this offer.

        >>> rows = np.arange(40)
        >>> said = np.random.default_rng(0).normal(size=(4, 1)).repeat(10, axis=0)
        >>> one = np.ones(40)
        >>> told = HiddenEvidence(0 * rows, rows, 0 * rows, one, one, said)
        >>> bool(told.once_a_key(rows // 10, 0).weight.sum() < 5)
        True
        >>> round(float(told.once_a_key(rows, 0).weight.sum()), 6)
        40.0
        """
        _, key = np.unique(keys, return_inverse=True)
        many = int(key.max(initial=0)) + 1
        if many < 2:
            return self
        square = self.left[:, offer] ** 2
        usual = self.weight @ square / max(float(self.weight.sum()), 1e-300)
        away = self.weight * (square - usual)
        free = (1.0 - 1.0 / many) / (1.0 - 1.0 / len(away))
        alone = float((away**2).sum()) * free
        together = float((np.bincount(key, weights=away) ** 2).sum())
        effect = max(1.0, together / max(alone, 1e-300))
        return replace(self, plain=self.plain / effect, weight=self.weight / effect)

    def grown(
        self, rows: Devices, start: int, learn: Mask, strangers: bool = False
    ) -> SharedTrees:
        """Trees of the labels of these rows (-1), or of what an offer leaves of those among them
        that were hidden from it; `strangers` as in `grow`.
        """
        if start < 0:
            return grow(rows, np.flatnonzero(learn), rows.y[learn], strangers)
        seen = learn[self.row]
        return grow(rows, self.row[seen], self.left[seen, start], strangers)

    def shares(self, simplest: int) -> Array:
        """Of each offer.

        >>> draw = np.random.default_rng(0)
        >>> label, owner = draw.normal(size=200), np.arange(200) // 20
        >>> label[owner == 0] *= 100  # large labels, which the second offer knows
        >>> left = np.column_stack([0.5 * label, 1.5 * draw.normal(size=200)])
        >>> one, calm = np.ones(200), np.where(owner == 0, 1e-4, 1.0)
        >>> fold = np.arange(200) % 5
        >>> told = HiddenEvidence(fold, owner, owner, one, calm, left)
        >>> alike = HiddenEvidence(fold, owner, owner, calm, calm, left)
        >>> alike.shares(0).round(1).tolist(), told.shares(0).round(1).tolist()
        ([0.9, 0.1], [0.1, 0.9])
        """
        crossed = (self.left * self.weight[:, None]).T @ self.left
        found = shares_of(crossed, float(self.weight.sum()), simplest)
        worth = self._worth_of_plain(found)
        plain = float(self.plain.sum())
        if not worth > 0:
            return found
        crossed = (self.left * self.plain[:, None]).T @ self.left * (worth / plain)
        return drawn_shares(crossed, worth, found, np.ones(len(found)))

    def better(self, shares: Array, before: Array) -> float:
        """By how many standard errors hidden rows are less wrong than they were `before`, with the
        first of these offers.

        >>> left = np.random.default_rng(0).normal(size=(50, 2)) * [2.0, 0.1]
        >>> rows, one = np.arange(50), np.ones(50)
        >>> told = HiddenEvidence(0 * rows, rows, 0 * rows, one, one, left)
        >>> told.better(np.array([0.0, 1.0]), np.ones(1)) > 4
        True
        """
        was = (self.left[:, : len(before)] @ before) ** 2
        gain = self.weight * (was - (self.left @ shares) ** 2)
        spread = float(gain.std())
        return float(gain.mean() / spread * np.sqrt(len(gain))) if spread > 0 else 0.0

    def _worth_of_plain(self, shares: Array) -> float:
        """How many rows plain squared errors are worth, where these shares were found by others."""
        error = (self.left @ shares) ** 2
        folds = int(self.fold.max(initial=0)) + 1
        each = np.bincount(self.owner * folds + self.fold, weights=self.plain * error)
        most = float(each.max(initial=0.0))
        if not most > 0:
            return 0.0
        spread = each.sum() / most
        counted = float(self.weight @ error) / float(each.sum())
        return float(spread**2 / ((each / most) ** 2).sum()) * max(1.0 - counted, 0.0)
