"""One model of classes for the whole fleet, and how large its slopes are.

The slopes have a prior, N(0, t), whose one variance is learned (empirical Bayes): few rows of many
columns tell little of them. With V what is unknown of a slope once the rows are seen,

    t = mean over slopes and classes of  slope^2 + V        (EM)

`t` is also the measure of how far personal slopes may be from those of the fleet. Small models are
found by Newton's steps (`class_newton`). For others these would need too large a matrix: they are
found by the steps of `class_fits`, and V by the curvature of a class's log chance, p (1 - p), at
its mean over the rows.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from persfl.methods.mixed import SMALL
from persfl.methods.mixed.class_fits import Axes, chances, pulled
from persfl.methods.mixed.class_newton import (
    bent,
    newton_centre,
    prior_variance,
    usual_slopes,
)
from persfl.methods.mixed.class_rows import ClassRows
from persfl.types import Array

ROUNDS = 4  # of EM


def fleet_centre(whole: ClassRows, *, level: bool) -> tuple[Array, float]:
    """(copies, d, classes) and t; t is that of the first copy, which hides nothing."""
    d, classes = whole.Z.shape[-1], whole.Y.shape[-1]
    if d * classes <= SMALL:
        copies = len(whole.weight)
        return newton_centre(partial(bent, whole), copies, d, classes, level=level)
    first = whole._replace(weight=whole.weight[:1])
    size = 1.0
    for _ in range(ROUNDS):
        size = _slopes(first, size, level=level)
    return _fitted(whole, prior_variance(d, size, level))[:, 0], size


def _fitted(whole: ClassRows, variance: Array) -> Array:
    shape = (len(whole.weight), 1, len(variance), whole.Y.shape[-1])
    return pulled(whole, Axes.of(whole, variance), np.zeros(shape))


def _slopes(whole: ClassRows, size: float, *, level: bool) -> float:
    variance = prior_variance(whole.Z.shape[-1], size, level)
    axes = Axes.of(whole, variance)
    shape = (1, 1, len(variance), whole.Y.shape[-1])
    models = pulled(whole, axes, np.zeros(shape))[0, 0]
    weight = whole.weight[0, 0]
    p = chances(whole.Z[0] @ models)
    curved = weight @ (p * (1.0 - p)) / max(float(weight.sum()), 1e-12)
    unknown = axes.B[0] ** 2 @ (1.0 / (axes.size[0][:, None] * curved + 1.0))
    return usual_slopes(models**2 + unknown, level)
