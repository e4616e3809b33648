"""Tables with many columns: models live in the few directions in which rows vary most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from persfl.devices import Devices
from persfl.methods.mixed.device_sums import DeviceSums
from persfl.types import Array

WIDE = 100  # columns; the cost of a mixed model grows with their cube


@dataclass(frozen=True, eq=False)
class PrincipalAxes:
    """Rows as they are, or along axes (columns, axes) of all rows; with a level in front."""

    level: bool
    axes: Array | None = None

    def inside(self, X: Array) -> Array:
        """Rows as models see them."""
        Z = X if self.axes is None else X @ self.axes
        return np.column_stack([np.ones(len(Z)), Z]) if self.level else Z

    def inside_sums(self, sums: DeviceSums) -> DeviceSums:
        """Sums of rows as models see them; the level's column is there already."""
        if self.axes is None:
            return sums
        wide = np.eye(self.level + len(self.axes), self.level + self.axes.shape[1])
        wide[self.level :, self.level :] = self.axes
        return sums.turned(wide)

    def outside(self, models: Array) -> Array:
        """The same models of the table's columns."""
        if self.axes is None:
            return models
        slopes = models[:, self.level :] @ self.axes.T
        return np.column_stack([models[:, : self.level], slopes])


def axes_of(rows: Devices, level: bool) -> PrincipalAxes:
    """The principal axes of these rows, where they have more than `WIDE` columns.

    >>> from persfl.sources import clustered_regression
    >>> axes_of(
    ...     clustered_regression(n=3, rows=5, features=2, seed=0), True
    ... ).axes is None
    True
    """
    if rows.features <= WIDE:
        return PrincipalAxes(level)
    weight = rows.weight
    mean = weight @ rows.X / weight.sum() if level else 0.0
    X = (rows.X - mean) * np.sqrt(weight)[:, None]
    if len(X) < rows.features:
        _, size, V = np.linalg.svd(X, full_matrices=False)
        return _longest(level, size, V.T, weight.sum(), 1e-9)
    return _of_square(level, X.T @ X, weight.sum())


def axes_of_sums(sums: DeviceSums, level: bool) -> PrincipalAxes:
    """The same where rows are elsewhere, from their sums."""
    square = sums.square.sum(axis=0)
    if len(square) - level <= WIDE:
        return PrincipalAxes(level)
    if level:
        first = square[0, 1:]
        square = square[1:, 1:] - np.outer(first, first) / square[0, 0]
    return _of_square(level, square, sums.weight.sum())


def _of_square(level: bool, square: Array, rows: float) -> PrincipalAxes:
    size, V = np.linalg.eigh(square)
    size = np.sqrt(np.maximum(size[::-1], 0.0))
    # the root of what rounding leaves of an axis along which nothing varies
    return _longest(level, size, V[:, ::-1], rows, 1e-6)


def _longest(
    level: bool, size: Array, V: Array, rows: float, least: float
) -> PrincipalAxes:
    """The longest of these axes; all that are not longer than a share `least` are none."""
    many = min(WIDE, max(1, int((size > least * size[0]).sum())))
    # each axis as long as it varies, so that all are measured alike
    return PrincipalAxes(
        level, V[:, :many] / np.maximum(size[:many] / np.sqrt(rows), 1e-12)
    )
