"""Tables with many columns: models live in the few directions in which rows vary most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from persfl.devices import Devices
from persfl.types import Array

WIDE = 100  # columns; the cost of a mixed model grows with their cube


@dataclass(frozen=True, eq=False)
class Axes:
    """Rows as they are, or along axes (columns, axes) of all rows; with a level in front."""

    level: bool
    axes: Array | None = None

    def inside(self, X: Array) -> Array:
        """Rows as models see them."""
        Z = X if self.axes is None else X @ self.axes
        return np.column_stack([np.ones(len(Z)), Z]) if self.level else Z

    def outside(self, models: Array) -> Array:
        """The same models of the table's columns."""
        if self.axes is None:
            return models
        slopes = models[:, self.level :] @ self.axes.T
        return np.column_stack([models[:, : self.level], slopes])


def axes_of(rows: Devices, level: bool) -> Axes:
    """The principal axes of these rows, where they have more than `WIDE` columns.

    >>> from persfl.sources import clustered_regression
    >>> axes_of(
    ...     clustered_regression(n=3, rows=5, features=2, seed=0), True
    ... ).axes is None
    True
    """
    if rows.features <= WIDE:
        return Axes(level)
    X = rows.X - rows.X.mean(axis=0) if level else rows.X
    if len(X) < rows.features:
        _, size, V = np.linalg.svd(X, full_matrices=False)
        V = V.T
    else:
        size, V = np.linalg.eigh(X.T @ X)
        size, V = np.sqrt(np.maximum(size[::-1], 0.0)), V[:, ::-1]
    many = min(WIDE, max(1, int((size > 1e-9 * size[0]).sum())))
    axes = V[:, :many]
    # each axis as long as it varies, so that all are measured alike
    return Axes(level, axes / np.maximum(size[:many] / np.sqrt(len(X)), 1e-12))
