"""Rows with classes, padded: devices that have about as many rows are worked on together.

Every model is fitted several times: to all rows, and without each hidden part. These are the
*copies* of a fleet; they differ in nothing but the weights of the rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from persfl.devices import Devices
from persfl.types import Array, IntArray

ROOM = 2**22  # numbers that are worked on at a time
ALIKE = 2  # devices together have at most so many times the rows of the smallest


class ClassRows(NamedTuple):
    """Some devices: `Z` (n, m, d) with a last column of ones where models have a level, `Y`
    (n, m, classes) is 1 at a row's class, `weight` (copies, n, m) is 0 for hidden rows and padding.
    """

    who: IntArray
    Z: Array
    Y: Array
    weight: Array

    def take(self, which: slice) -> ClassRows:
        """Some of these devices."""
        parts = self.who[which], self.Z[which], self.Y[which], self.weight[:, which]
        return ClassRows(*parts)


def with_level(X: Array, level: bool) -> Array:
    """Rows with a last column of ones, where models have a level.

    >>> with_level(np.array([[2.0]]), True).tolist()
    [[2.0, 1.0]]
    """
    return np.column_stack([X, np.ones(len(X))]) if level else X


def all_rows(rows: Devices, shown: Array, *, classes: int, level: bool) -> ClassRows:
    """The whole fleet as if it were one device; `shown` (copies, rows) is 0 or 1."""
    Z = with_level(rows.X, level)[None]
    Y = (rows.y[:, None] == np.arange(classes))[None].astype(np.float64)
    return ClassRows(np.zeros(1, dtype=np.int64), Z, Y, (shown * rows.weight)[:, None])


def device_rows(rows: Devices, whole: ClassRows) -> list[ClassRows]:
    """The same rows device by device, in parts of devices that have about as many."""
    wide = max(len(whole.weight) * whole.Y.shape[-1], whole.Z.shape[-1])
    return [_padded(rows, who, whole) for who in like_counts(rows.counts, wide)]


def like_counts(counts: IntArray, wide: int) -> list[IntArray]:
    """Which to work on together: those of like counts, while counts times `wide` have room.

    >>> [who.tolist() for who in like_counts(np.array([100, 5, 6]), 1)]
    [[1, 2], [0]]
    """
    order = np.argsort(counts, kind="stable")
    found = []
    begin = 0
    for i in range(1, len(order) + 1):
        if i < len(order):
            many = int(counts[order[i]])
            like = many <= ALIKE * max(int(counts[order[begin]]), 4)
            if like and (i + 1 - begin) * many * wide <= ROOM:
                continue
        found.append(order[begin:i])
        begin = i
    return found


def _padded(rows: Devices, who: IntArray, whole: ClassRows) -> ClassRows:
    slot = np.arange(max(1, int(rows.counts[who].max())))
    real = slot < rows.counts[who][:, None]
    at = np.where(real, rows.start[who][:, None] + slot, 0)
    Z = whole.Z[0, at] * real[..., None]
    return ClassRows(who, Z, whole.Y[0, at], whole.weight[:, 0, at] * real)
