"""Tables with many columns: models live in the few directions in which rows vary most."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

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
        found = Spectrum(size, V.T, 1e-9)
    else:
        found = _of_square(X.T @ X)

    def shared() -> Array:
        each = (X @ found.axes) ** 2
        split = (each[rows.start[i] : rows.start[i + 1]] for i in range(len(rows)))
        return _without_odd(np.stack([one.sum(axis=0) for one in split]))

    return found.longest(level, weight.sum(), shared)


def axes_of_sums(sums: DeviceSums, level: bool) -> PrincipalAxes:
    """The same where rows are elsewhere, from their sums."""
    if sums.square.shape[1] - level <= WIDE:
        return PrincipalAxes(level)
    square = sums.square[:, level:, level:]
    rows = sums.weight.sum()
    mean = np.zeros(square.shape[1])
    first = np.zeros((len(square), len(mean)))
    if level:
        first = sums.square[:, 0, 1:]
        mean = first.sum(axis=0) / rows
    found = _of_square(square.sum(axis=0) - rows * np.outer(mean, mean))

    def shared() -> Array:
        V = found.axes
        along = mean @ V
        # about the mean of all, as that of rows
        each = np.stack([((one @ V) * V).sum(axis=0) for one in square])
        each += sums.weight[:, None] * along**2 - 2.0 * (first @ V) * along
        return _without_odd(each)

    return found.longest(level, rows, shared)


class Spectrum(NamedTuple):
    """All axes (columns, axes), the longest first, and how long each is; those that are not longer
    than a share `least` of the longest are none.
    """

    size: Array
    axes: Array
    least: float

    def longest(
        self, level: bool, rows: float, shared: Callable[[], Array]
    ) -> PrincipalAxes:
        """Those that are kept; where there are too many, those along which most varies, by
        `shared`.
        """
        there = max(1, int((self.size > self.least * self.size[0]).sum()))
        kept = np.arange(there)
        if there > WIDE:
            order = np.argsort(-shared()[:there], kind="stable")
            kept = np.sort(order[:WIDE])
        # each axis as long as it varies, so that all are measured alike
        length = np.maximum(self.size[kept] / np.sqrt(rows), 1e-12)
        return PrincipalAxes(level, self.axes[:, kept] / length)


def _of_square(square: Array) -> Spectrum:
    size, V = np.linalg.eigh(square)
    size = np.sqrt(np.maximum(size[::-1], 0.0))
    # the root of what rounding leaves of an axis along which nothing varies
    return Spectrum(size, V[:, ::-1], 1e-6)


def _without_odd(each: Array) -> Array:
    """(axes,) how much varies along each, of (devices, axes), without the device that is most
    unlike the mean: nobody alone decides which columns of all count.

    >>> _without_odd(np.array([[1.0, 2.0], [1.0, 2.0], [90.0, 0.0]])).tolist()
    [2.0, 4.0]
    """
    found = each.sum(axis=0)
    if len(each) < 3:
        return np.asarray(found)
    odd = int(np.abs(each - each.mean(axis=0)).sum(axis=1).argmax())
    return np.asarray(found - each[odd])
