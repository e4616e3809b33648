"""Where a device stands now: what a model leaves of its latest row goes on.

    w' = w + (label - columns' w) in the level

Levels wander: in the order of time the latest row says more of the next one than all rows together
do. So each offer w is made once more, moved to where the latest row is, and rows that come later
say how much of either is right. Over a federation the latest row is the mean of as many as an owner
wants of each part (`persfl.federation.row_stock`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from persfl.types import Array, IntArray

GOING_ON = ", going on"  # after the name of the offer that is moved


class LatestRows(NamedTuple):
    """`columns` (n, columns), the level's first, and `label` (n,); zeros of who has no row."""

    columns: Array
    label: Array

    @staticmethod
    def of(Z: Array, y: Array, weight: Array, start: IntArray) -> LatestRows:
        """Each device's last row that weighs anything.

        >>> Z, start = (
        ...     np.array([[1.0, 2.0], [1.0, 4.0], [1.0, 5.0]]),
        ...     np.array([0, 2, 3]),
        ... )
        >>> found = LatestRows.of(
        ...     Z, np.array([3.0, 1.0, 2.0]), np.array([1.0, 1, 0]), start
        ... )
        >>> found.columns.tolist(), found.label.tolist()
        ([[1.0, 4.0], [0.0, 0.0]], [1.0, 0.0])
        """
        n = len(start) - 1
        owner = np.repeat(np.arange(n), np.diff(start))
        last = np.full(n, -1)
        there = np.flatnonzero(weight > 0)
        np.maximum.at(last, owner[there], there)
        found = LatestRows(np.zeros((n, Z.shape[1])), np.zeros(n))
        who = last >= 0
        found.columns[who] = Z[last[who]]
        found.label[who] = y[last[who]]
        return found

    def at(self, which: IntArray) -> LatestRows:
        """Of these devices."""
        return LatestRows(self.columns[which], self.label[which])

    def along(self, inside: Callable[[Array], Array]) -> LatestRows:
        """The same in other columns, behind the level."""
        there = self.columns[:, :1]
        return self._replace(columns=inside(self.columns[:, 1:]) * there)

    def moved(self, models: Array) -> Array:
        """(offers, n, columns) models that agree with the latest row.

        >>> latest = LatestRows(np.array([[1.0, 2.0]]), np.array([7.0]))
        >>> latest.moved(np.array([[[0.0, 3.0]]])).tolist()
        [[[1.0, 3.0]]]
        """
        found = models.copy()
        said = np.einsum("cnd,nd->cn", models, self.columns)
        found[:, :, 0] += self.label - said
        return found


def decided_where_moved(decided: Array, columns: int) -> Array:
    """How many coefficients of a moved model own rows decide: its level wholly, and of the others
    the same share as before.

    >>> decided_where_moved(np.array([0.0, 2.0, 4.0]), 4).tolist()
    [1.0, 2.5, 4.0]
    """
    return np.asarray(1.0 + decided * (columns - 1.0) / columns)
