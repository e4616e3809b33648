"""Means and spreads of columns, joined from those of their parts (Chan, Golub, LeVeque 1979)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from persfl.types import Array
from persfl.units import Units

STEADY = 1e-12  # of a column's size: what moves less does not move


class ColumnMoments(NamedTuple):
    """The weight of all rows; of each column the mean, the sum of squares about it, and the largest
    value without its sign.
    """

    weight: float
    mean: Array
    square: Array
    largest: Array

    @staticmethod
    def none(columns: int) -> ColumnMoments:
        """Of no rows."""
        zero = np.zeros(columns)
        return ColumnMoments(0.0, zero, zero, zero)

    @staticmethod
    def of(values: Array, weight: Array) -> ColumnMoments:
        """Of rows (rows, columns).

        >>> left = ColumnMoments.of(np.array([[1.0], [3.0]]), np.ones(2))
        >>> both = left.joined(ColumnMoments.of(np.array([[8.0]]), np.ones(1)))
        >>> both.mean.tolist(), both.square.tolist()
        ([4.0], [26.0])
        """
        total = float(weight.sum())
        mean = weight @ values / total
        square = weight @ (values - mean) ** 2
        return ColumnMoments(total, mean, square, np.abs(values).max(axis=0))

    def joined(self, other: ColumnMoments) -> ColumnMoments:
        """Of the rows of both."""
        total = self.weight + other.weight
        if not total > 0:
            return self
        away = other.mean - self.mean
        mean = self.mean + away * (other.weight / total)
        between = away**2 * (self.weight * other.weight / total)
        square = self.square + other.square + between
        return ColumnMoments(
            total, mean, square, np.maximum(self.largest, other.largest)
        )

    def units(self) -> Units:
        """Shared units, as `Units.of` has them; the label is the last column."""
        scale = np.sqrt(self.square / self.weight)
        # a column that hardly moves has no scale of its own: what is left is rounding
        steady = ~(scale > STEADY * np.maximum(np.abs(self.mean), self.largest))
        scale = np.where(steady | ~np.isfinite(scale), 1.0, scale)
        mean = self.mean
        return Units.shared(mean[:-1], scale[:-1], float(mean[-1]), float(scale[-1]))
