"""One model of classes for the whole fleet, and how large its slopes are.

The slopes have a prior, N(0, t), whose one variance is learned (empirical Bayes): few rows of many
columns tell little of them. With V what is unknown of a slope once the rows are seen,

    t = mean over slopes and classes of  slope^2 + V        (EM)

and V by the curvature of a class's log chance, p (1 - p), at its mean over the rows. `t` is also
the measure of how far personal slopes may be from those of the fleet.
"""

from __future__ import annotations

import numpy as np

from persfl.methods.mixed.class_fits import Axes, chances, pulled
from persfl.methods.mixed.class_rows import ClassRows
from persfl.types import Array

ROUNDS = 4  # of EM
WIDE = 10.0  # the variance of a level: in log odds, next to no prior
USUAL = (
    1.0  # slopes of variance 1 that are known beforehand: a few rows tell little of t
)


def fleet_centre(whole: ClassRows, *, level: bool) -> tuple[Array, float]:
    """(copies, d, classes) and t; t is that of the first copy, which hides nothing."""
    first = whole._replace(weight=whole.weight[:1])
    size = 1.0
    for _ in range(ROUNDS):
        size = _slopes(first, size, level=level)
    return _fitted(whole, _variance(whole, size, level))[:, 0], size


def _variance(whole: ClassRows, size: float, level: bool) -> Array:
    found = np.full(whole.Z.shape[-1], size)
    if level:
        found[-1] = WIDE
    return found


def _fitted(whole: ClassRows, variance: Array) -> Array:
    shape = (len(whole.weight), 1, len(variance), whole.Y.shape[-1])
    return pulled(whole, Axes.of(whole, variance), np.zeros(shape))


def _slopes(whole: ClassRows, size: float, *, level: bool) -> float:
    variance = _variance(whole, size, level)
    axes = Axes.of(whole, variance)
    shape = (1, 1, len(variance), whole.Y.shape[-1])
    models = pulled(whole, axes, np.zeros(shape))[0, 0]
    weight = whole.weight[0, 0]
    p = chances(whole.Z[0] @ models)
    curved = weight @ (p * (1.0 - p)) / max(float(weight.sum()), 1e-12)
    unknown = axes.B[0] ** 2 @ (1.0 / (axes.size[0][:, None] * curved + 1.0))
    square = models**2 + unknown
    slopes = square[:-1] if level else square
    return float((slopes.sum() + USUAL) / (slopes.size + USUAL))
