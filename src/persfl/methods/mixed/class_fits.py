"""Models of classes that are pulled toward a centre, for many devices at once.

    most of   sum over rows of weight * log softmax(Z w)_y  -  |w - centre|^2 / (2 variance)

In the axes of the prior, `sqrt(weight) Z sqrt(variance) = U D Q'` and `w = centre + B b` with
`B = sqrt(variance) Q`, the pull is |b|^2 / 2 and the curvature of the rows is never above
D^2 / 2 in any class (Boehning 1992). So the step

    b + (gradient at b) / (D^2 / 2 + 1)

never loses, and needs no matrix but the rows. With momentum, begun anew where it points downhill
(O'Donoghue and Candes 2015), some tens of steps are enough. Hidden rows only lower the curvature:
one decomposition serves all copies, and one serves all variances that differ by a factor.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from persfl.methods.mixed.class_rows import ClassRows
from persfl.types import Array

BOUND = 0.5  # the largest curvature of a class's log chance
STEPS = 60  # the weakest pull is then within 0.01 of the highest log chance
SHORT = 8  # classes that are walked one by one


class Axes(NamedTuple):
    """Rows in the axes of a prior: `F` (n, m, r) = Z B, `size` (n, r) = D^2, `B` (n, d, r)."""

    F: Array
    size: Array
    B: Array

    @staticmethod
    def of(rows: ClassRows, variance: Array) -> Axes:
        """`variance` (d,) of each coefficient; 0 for one that stays at the centre."""
        root = np.sqrt(variance)
        scaled = rows.Z * root
        heavy = scaled * np.sqrt(rows.weight.max(axis=0))[..., None]
        if heavy.shape[-2] > heavy.shape[-1]:
            size, axes = np.linalg.eigh(np.swapaxes(heavy, -1, -2) @ heavy)
            size = np.maximum(size, 0.0)
        else:  # fewer rows than coefficients: no more axes than rows
            _, D, Q = np.linalg.svd(heavy, full_matrices=False)
            size, axes = D**2, np.swapaxes(Q, -1, -2)
        return Axes(scaled @ axes, size, root[:, None] * axes)


def pulled(
    rows: ClassRows,
    axes: Axes,
    centre: Array,
    factor: float = 1.0,
    *,
    steps: int = STEPS,
    begin: Array | None = None,
) -> Array:
    """(copies, n, d, classes) near `centre` of that shape; `factor` multiplies the variance. Steps
    begin at `centre`, or at b = `begin` (copies, n, r, classes).
    """
    Y = rows.Y
    weight = rows.weight[..., None]
    fixed = rows.Z @ centre
    back = np.swapaxes(axes.F, -1, -2)
    pace = 1.0 / (BOUND * axes.size[..., None] + 1.0 / factor)
    old = np.zeros((*centre.shape[:2], axes.F.shape[-1], Y.shape[-1]))
    if begin is not None:
        old = begin
    ahead = old
    age = np.ones((*centre.shape[:2], 1, 1))
    for _ in range(steps):
        score = fixed + axes.F @ ahead
        slope = back @ (weight * (Y - chances(score))) - ahead / factor
        new = ahead + pace * slope
        uphill = np.einsum("...rk,...rk->...", new - old, slope)[..., None, None]
        age = np.where(uphill < 0, 1.0, age)
        older = (1.0 + np.sqrt(1.0 + 4.0 * age**2)) / 2.0
        ahead = new + (age - 1.0) / older * (new - old)
        old = new
        age = older
    return np.asarray(centre + axes.B @ old)


def decided(rows: ClassRows, axes: Axes, models: Array, factor: float = 1.0) -> Array:
    """(n,) how much of models (n, d, classes) own rows decide, 0 to 1: in each axis the share of
    the rows' curvature in the whole of it, the mean over the axes that can move.
    """
    weight = rows.weight[0]
    p = chances(rows.Z @ models)
    curved = np.einsum("nm,nmk->n", weight, p * (1.0 - p)) / p.shape[-1]
    curved /= np.maximum(weight.sum(axis=1), 1e-12)
    h = axes.size * curved[:, None]
    free = max(int((axes.B**2).sum(axis=-1).max(axis=0).astype(bool).sum()), 1)
    return np.asarray((h / (h + 1.0 / factor)).sum(axis=1) / free)


def chances(score: Array) -> Array:
    """Softmax over the last axis.

    >>> chances(np.array([0.0, np.log(3.0)])).round(2).tolist()
    [0.25, 0.75]
    """
    high = np.exp(score - _over(np.maximum, score)[..., None])
    return np.asarray(high / _over(np.add, high)[..., None])


def log_chances(score: Array) -> Array:
    """The logarithm of `chances`, exact for small ones."""
    low = score - _over(np.maximum, score)[..., None]
    return np.asarray(low - np.log(_over(np.add, np.exp(low)))[..., None])


def _over(what: np.ufunc, numbers: Array) -> Array:
    """Over the last axis. A short one is walked: numpy is slow where there is little to reduce."""
    if numbers.shape[-1] > SHORT:
        return np.asarray(what.reduce(numbers, axis=-1))
    found = numbers[..., 0]
    for k in range(1, numbers.shape[-1]):
        found = what(found, numbers[..., k])
    return np.asarray(found)
