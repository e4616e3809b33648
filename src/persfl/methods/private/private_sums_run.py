"""Squared loss from noised sums: each device tells them once, and all else is free.

What is told is worked up in two ways. One model for all is solved from everybody's sums but the
target's own, held up by as much as noise may have pulled down (AdaSSP, Wang 2018). And a method
that needs nothing but moments (the default rule, the mixed model, the paper's loop, kin) runs on
made-up rows with those moments.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from persfl.devices import Devices
from persfl.learners.linear import Linear
from persfl.methods.local_task import LocalTask
from persfl.methods.mixed.device_sums import DeviceSums
from persfl.methods.mixed.hidden_rows import NEVER
from persfl.methods.mixed.linear_rule import blend_of_sums
from persfl.methods.mixed.principal_axes import PrincipalAxes
from persfl.methods.private.private_budget import RunBudget
from persfl.methods.protocol import Method
from persfl.privacy.mechanisms import noised_products, product_clip
from persfl.types import Array

LOUD = 0.6  # of the sums


def told_products(rows: Devices, clip: float | str, spend: RunBudget) -> Array:
    """(devices, wide, wide) what every device tells, noise and all, of (1, x, y)."""
    length = product_clip(rows.features) if isinstance(clip, str) else clip
    z = spend.noise()
    told = [
        noised_products(rows[i], length, z, spend.source(i, "sums")).matrix
        for i in range(len(rows))
    ]
    return np.stack(told)


def is_loud(told: Array, deviation: float) -> bool:
    """Whether noise may be most of what everybody told together: its largest direction against
    the middle one of the sums. Everybody may know that.

    >>> quiet, loud = np.eye(4)[None] * 100, np.eye(4)[None]
    >>> is_loud(quiet, 1.0), is_loud(loud, 1.0)
    (False, True)
    """
    every = told.sum(axis=0)[:-1, :-1]
    middle = float(np.median(np.linalg.eigvalsh(every)))
    return _largest(len(every), len(told), deviation) > LOUD * middle


def _largest(columns: int, devices: int, deviation: float) -> float:
    """The largest direction of symmetric noise that so many devices add up to, about."""
    return deviation * float(np.sqrt(2.0 * columns * devices))


def pooled_anchor(told: Array, deviation: float, level: bool) -> Array:
    """(devices, size) for each device one model of all others' sums, the intercept last."""
    others = told.sum(axis=0) - told
    n, wide, _ = told.shape
    first = 0 if level else 1
    size = wide - 1 - first
    largest = _largest(size, max(n - 1, 1), deviation)
    found = np.zeros((n, size))
    for i, sums in enumerate(others):
        square = sums[first:-1, first:-1]
        least = float(np.linalg.eigvalsh(square)[0])
        hold = max(largest - least, 0.0)
        found[i] = np.linalg.solve(square + hold * np.eye(size), sums[first:-1, -1])
    return np.roll(found, -1, axis=1) if level else found


def moment_rows(told: Array) -> Devices:
    """Made-up rows with these moments, as far as rows can have them: two for every direction in
    which (x, y) spreads, at equal distance on both sides of the mean.

    >>> u = np.array([[1.0, 2.0, 5.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    >>> made = moment_rows((u.T @ u)[None])
    >>> v = np.column_stack([np.ones(len(made.y)), made.X, made.y])
    >>> bool(np.allclose((v * made.weight[:, None]).T @ v, u.T @ u))
    True
    """
    rows = []
    for matrix in told:
        count = max(float(matrix[0, 0]), 1.0)
        mean = matrix[0, 1:] / count
        around = matrix[1:, 1:] / count - np.outer(mean, mean)
        value, turn = np.linalg.eigh((around + around.T) / 2)
        many = len(mean)
        away = (turn * np.sqrt(np.maximum(value, 0.0) * many)).T
        points = np.vstack([mean + away, mean - away])
        weight = np.full(2 * many, count / (2 * many))
        rows.append((points[:, :-1], points[:, -1], weight))
    return Devices.of(rows, quiet=True)


def blend_anchor(told: Array, learner: Linear, seed: int) -> Array:
    """(devices, size) what the default rule makes of what was told; zeros where noise is too
    much for it.
    """
    made = moment_rows(told)
    axes = PrincipalAxes(learner.intercept)
    sums = DeviceSums.of(axes.inside(made.X), made.y, made.weight, made.start)
    nothing = DeviceSums(*(np.zeros_like(each) for each in sums))
    parts = [nothing] * NEVER + [sums]
    with np.errstate(all="ignore"):
        level = learner.intercept
        found = blend_of_sums(parts, [], level=level, seed=seed, never=NEVER)
        models = found.blended(axes).models
    models = np.where(np.isfinite(models), models, 0.0)
    return np.roll(models, -1, axis=1) if learner.intercept else models


def method_anchor(told: Array, task: LocalTask, method: Method) -> Array:
    """(devices, size) what another method makes of made-up rows."""
    made = replace(task, rows=moment_rows(told))
    return np.asarray(method.run(made).models)
