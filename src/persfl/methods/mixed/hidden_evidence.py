"""Hidden rows, and what each offer leaves of them: the evidence for shares.

Rows of one date say nearly the same at many devices, and many of them are no more evidence than a
few. How much less is told by the rows: with q what a row's squared residual is above the mean, the
sum of q over the rows of a date varies

    effect = sum over dates of (sum of q)^2 / sum over rows of q^2

(corrected for the mean, which is that of the same rows) times as much as if they knew nothing of
each other, and each row counts for that much less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from persfl.devices import Devices
from persfl.learners.shared_trees import SharedTrees
from persfl.methods.mixed.grown_trees import grow
from persfl.methods.mixed.hidden_rows import HiddenRows
from persfl.methods.mixed.stacking import shares_of
from persfl.types import Array, IntArray, Mask


@dataclass(frozen=True, eq=False)
class HiddenEvidence:
    """Hidden rows, all folds behind each other: which they are, what each offer leaves of them."""

    fold: IntArray
    row: IntArray
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
            weight = rows.weight[row] * calm[owner]
            found.append((np.full(len(row), k), row, weight, rows.y[row, None] - said))
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
        >>> told = HiddenEvidence(0 * rows, rows, np.ones(40), said)
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
        return replace(self, weight=self.weight / effect)

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
        """Of each offer."""
        crossed = (self.left * self.weight[:, None]).T @ self.left
        return shares_of(crossed, float(self.weight.sum()), simplest)
