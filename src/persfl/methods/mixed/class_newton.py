"""One small model of classes for the whole fleet, by Newton's steps from sums over devices.

With p the chances of a row z by a model w, and w one vector of all columns and classes,

    slope  =  sum of weight * z (y - p)'
    curve  =  sum of weight * zz' (diag(p) - pp')        (columns and classes by each other)

the slope and curve of the log chance of labels, are sums over rows, so sums over devices: nobody
needs to see a row of another's. A step goes to where the parabola that they describe, with the
prior, is highest. The log chance has one summit, so a step is too long where it ends going down
more steeply than it began going up; it is then halved. Between steps the variance t of slopes is
found as in `class_centre`, with V the diagonal of (curve + prior)^-1. Then every copy of the fleet,
which hides some rows, goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from persfl.methods.mixed.class_fits import chances
from persfl.methods.mixed.class_rows import ClassRows
from persfl.types import Array

STEPS = 8  # of the model and t by turns
COPY_STEPS = 4  # of each copy, from there
WIDE = 10.0  # the variance of a level: in log odds, next to no prior
LARGEST = (
    1e2  # t at most: slopes of 10 in log odds; one liar can feign more than rows need
)
USUAL = 1.0  # slopes of variance 1 that are known beforehand: few rows tell little of t


class Bend(NamedTuple):
    """How the log chance of labels bends at some models: `slope` (copies, columns * classes) and
    `curve`, a matrix for each copy.
    """

    slope: Array
    curve: Array


Ask = Callable[[Array], Bend]


def bent(rows: ClassRows, models: Array) -> Bend:
    """Of these devices together, at models (copies, d, classes) of the first copies.

    >>> who = np.zeros(1, dtype=np.int64)
    >>> Y = np.eye(2)[None]
    >>> rows = ClassRows(who, np.ones((1, 2, 1)), Y, np.ones((1, 1, 2)))
    >>> told = bent(rows, np.zeros((1, 1, 2)))
    >>> told.slope.tolist(), told.curve[0].tolist()
    ([[0.0, 0.0]], [[0.5, -0.5], [-0.5, 0.5]])
    """
    d, classes = models.shape[1:]
    Z = rows.Z.reshape(-1, d)
    Y = rows.Y.reshape(-1, classes)
    many = len(models)
    found = Bend(
        np.empty((many, d * classes)),
        np.empty((many, d * classes, d * classes)),
    )
    for k, model in enumerate(models):
        weight = rows.weight[k].ravel()
        p = chances(Z @ model)
        found.slope[k] = (Z.T @ (weight[:, None] * (Y - p))).ravel()
        both = (Z[:, :, None] * p[:, None, :]).reshape(len(Z), -1)
        curve = -(both * weight[:, None]).T @ both
        for c in range(classes):
            curve[c::classes, c::classes] += (Z * (weight * p[:, c])[:, None]).T @ Z
        found.curve[k] = curve
    return found


class _Point(NamedTuple):
    """A model (d, classes), and how the log chance bends there."""

    model: Array
    slope: Array
    curve: Array

    def uphill(self, variance: Array) -> Array:
        """The slope of rows and prior."""
        return self.slope - (self.model / variance[:, None]).ravel()

    def bend(self, variance: Array) -> Array:
        """The curvature of rows and prior."""
        prior = np.repeat(1.0 / variance, self.model.shape[1])
        return self.curve + np.diag(prior)

    def next(self, variance: Array) -> Array:
        """Where the parabola is highest."""
        step = _solved(self.bend(variance), self.uphill(variance))
        return self.model + step.reshape(self.model.shape)

    def is_too_far(self, before: _Point | None, variance: Array) -> bool:
        """Whether the way from there goes down here more steeply than it began."""
        if before is None:
            return False
        way = (self.model - before.model).ravel()
        return bool(way @ self.uphill(variance) < -(way @ before.uphill(variance)))


def newton_centre(
    ask: Ask, copies: int, columns: int, classes: int, *, level: bool
) -> tuple[Array, float]:
    """(copies, columns, classes) and t. `ask` tells bends of the first copy at one model, and of
    all copies at one model each.
    """
    size = 1.0
    best: _Point | None = None
    model = np.zeros((columns, classes))
    for _ in range(STEPS):
        here = _point(ask(model[None]), 0, model)
        variance = prior_variance(columns, size, level)
        if best is not None and here.is_too_far(best, variance):
            model = (model + best.model) / 2
            continue
        best = here
        size = _slopes(best, variance, level)
        model = best.next(prior_variance(columns, size, level))
    start = np.repeat(model[None], copies, axis=0)
    return _each_copy(ask, start, prior_variance(columns, size, level)), size


def _each_copy(ask: Ask, models: Array, variance: Array) -> Array:
    """Every copy from its model on."""
    best: list[_Point | None] = [None] * len(models)
    for _ in range(COPY_STEPS):
        told = ask(models)
        moved = np.empty_like(models)
        for k, model in enumerate(models):
            here = _point(told, k, model)
            before = best[k]
            if before is not None and here.is_too_far(before, variance):
                moved[k] = (model + before.model) / 2
                continue
            best[k] = here
            moved[k] = here.next(variance)
        models = moved
    return models


def prior_variance(columns: int, size: float, level: bool) -> Array:
    """(columns,) t for slopes, and a wide one for the level, which is the last."""
    found = np.full(columns, size)
    if level:
        found[-1] = WIDE
    return found


def usual_slopes(square: Array, level: bool) -> float:
    """t from (columns, classes) what is expected of each squared coefficient."""
    slopes = square[:-1] if level else square
    return float((slopes.sum() + USUAL) / (slopes.size + USUAL))


def _point(told: Bend, k: int, model: Array) -> _Point:
    return _Point(model, told.slope[k], told.curve[k])


def _slopes(point: _Point, variance: Array, level: bool) -> float:
    bend = point.bend(variance)
    unknown = np.maximum(np.diag(_solved(bend, np.eye(len(bend)))), 0.0)
    square = point.model**2 + unknown.reshape(point.model.shape)
    return min(usual_slopes(square, level), LARGEST)


def _solved(matrix: Array, right: Array) -> Array:
    """Without an error where made-up curvatures are so large that the prior is lost in rounding."""
    try:
        return np.asarray(np.linalg.solve(matrix, right))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.pinv(matrix, hermitian=True) @ right)
