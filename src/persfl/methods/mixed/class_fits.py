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
from persfl.types import Array, Mask

BOUND = 0.5  # the largest curvature of a class's log chance
STEPS = 60  # 100 or 200 change no figure of the tables in the third digit
FAR = -1e3  # the score of a class that is left out


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
    seen: Mask | None = None,
    steps: int = STEPS,
) -> Array:
    """(copies, n, d, classes) models near `centre` of that shape, by `factor` times the variance.

    With `seen` (copies, n, classes) classes that a device has no row of are left out: their
    coefficients stay at the centre, and they take nothing from the others.
    """
    Y = rows.Y
    weight = rows.weight[..., None]
    known = None if seen is None else seen[:, :, None, :]
    fixed = rows.Z @ centre
    back = np.swapaxes(axes.F, -1, -2)
    pace = 1.0 / (BOUND * axes.size[..., None] + 1.0 / factor)
    old = np.zeros((*centre.shape[:2], axes.F.shape[-1], Y.shape[-1]))
    ahead = old
    age = np.ones((*centre.shape[:2], 1, 1))
    for _ in range(steps):
        score = fixed + axes.F @ ahead
        if known is not None:
            score = np.where(known, score, FAR)
        slope = back @ (weight * (Y - chances(score))) - ahead / factor
        if known is not None:
            slope = np.where(known, slope, 0.0)
        new = ahead + pace * slope
        down = ((new - old) * slope).sum(axis=(-1, -2), keepdims=True) < 0
        age = np.where(down, 1.0, age)
        older = (1.0 + np.sqrt(1.0 + 4.0 * age**2)) / 2.0
        ahead = new + (age - 1.0) / older * (new - old)
        old = new
        age = older
    return np.asarray(centre + axes.B @ old)


def chances(score: Array) -> Array:
    """Softmax over the last axis.

    >>> chances(np.array([0.0, np.log(3.0)])).round(2).tolist()
    [0.25, 0.75]
    """
    high = np.exp(score - score.max(axis=-1, keepdims=True))
    return np.asarray(high / high.sum(axis=-1, keepdims=True))


def log_chances(score: Array) -> Array:
    """The logarithm of `chances`, exact for small ones."""
    low = score - score.max(axis=-1, keepdims=True)
    return np.asarray(low - np.log(np.exp(low).sum(axis=-1, keepdims=True)))
