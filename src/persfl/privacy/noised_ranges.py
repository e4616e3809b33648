"""Where the values of columns lie, found out privately: noised counts, and a closer look at those.

Nothing has to be known in advance. First rows are counted by the size and the sign of their values
(powers of two), then in even bins of the range that was found. One row is in one bin of every
column, so its counts move by the square root of the number of columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from persfl.privacy.mechanisms import noised_counts
from persfl.privacy.secure_noise import NoiseSource
from persfl.types import Array, IntArray

LOW = -30  # powers of two that values are told apart by
HIGH = 50
BINS = 64
SURE = 3.0  # deviations of the noise by which a count must stand out
Counted = Callable[[Callable[[Array], IntArray], int], Array]
"""Noised counts in so many bins a column, of values (rows, columns) that are put into bins."""


class ColumnSpread(NamedTuple):
    """(columns,) mean and root mean square deviation, and about how many rows there are."""

    mean: Array
    scale: Array
    rows: float


_POWERS = 2.0 ** np.arange(LOW, HIGH + 1)
_EDGES = np.concatenate([-_POWERS[::-1], _POWERS])
_ZERO = len(_POWERS)  # the bin of what is nearly 0


def size_bins(values: Array) -> IntArray:
    """The bin of each value by its sign and size: bin k ends at edge k.

    >>> (size_bins(np.array([[0.0, 1.0, -1.0, 3.0]])) - _ZERO).tolist()
    [[0, 31, -30, 32]]
    """
    return np.asarray(np.searchsorted(_EDGES, np.nan_to_num(values), side="right"))


def spread_of(counted: Counted, noise: float) -> ColumnSpread:
    """From noised counts, whose noise has this standard deviation."""
    first = counted(size_bins, len(_EDGES) + 1)
    low, high = _range(first, noise)
    width = (high - low) / BINS

    def even(values: Array) -> IntArray:
        inside = np.floor((np.nan_to_num(values) - low) / width)
        return np.asarray(np.clip(inside, 0, BINS - 1), dtype=np.int64)

    second = counted(even, BINS)
    kept = np.where(second > SURE * noise, second, 0.0)
    total = np.maximum(kept.sum(axis=1), 1.0)
    middle = low[:, None] + (np.arange(BINS) + 0.5) * width[:, None]
    mean = (kept * middle).sum(axis=1) / total
    square = (kept * (middle - mean[:, None]) ** 2).sum(axis=1) / total
    # a bin is no point: even values within it have this much spread
    scale = np.sqrt(square + width**2 / 12.0)
    return ColumnSpread(mean, scale, float(max(np.median(second.sum(axis=1)), 1.0)))


def _range(counts: Array, noise: float) -> tuple[Array, Array]:
    """The sizes between which rows stand out of the noise; -1 to 1 where none but 0 does."""
    low = np.full(len(counts), -1.0)
    high = np.ones(len(counts))
    for k, line in enumerate(counts):
        there = np.flatnonzero(line > SURE * noise)
        if (there != _ZERO).any():
            low[k] = _EDGES[max(there[0] - 1, 0)]
            high[k] = _EDGES[min(there[-1], len(_EDGES) - 1)]
    return low, high


def counts_of(
    values: Array,
    binned: Callable[[Array], IntArray],
    bins: int,
    multiplier: float,
    source: NoiseSource,
) -> Array:
    """(columns, bins) one device's noised counts."""
    columns = values.shape[1]
    place = binned(values) + bins * np.arange(columns)
    counts = np.bincount(place.ravel(), minlength=columns * bins)
    length = float(np.sqrt(columns))
    told = noised_counts(counts, length, multiplier, source)
    return np.asarray(told.reshape(columns, bins))
