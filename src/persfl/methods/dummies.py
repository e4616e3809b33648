"""One ridge regression of all rows, with a column per device: what everybody tries first.

    min over b and d_i of   sum over rows of weight * loss(x'(b + d_i), y)
                            + ridge * (||slopes of b||^2 + sum_i ||d_i||^2)

`d_i` is a device's own level, or with `slopes` its own slopes too. A device without rows has d_i =
0. Known as least squares with dummy variables and, with own slopes, as data-shared lasso's ridge
(Gross and Tibshirani 2016); a mixed model whose effects all have one variance predicts the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.optimize import minimize

from persfl.checks import real
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.learners.linear import Linear
from persfl.methods.method_fields import MethodSettings, setting
from persfl.methods.protocol import Needs, Task
from persfl.methods.shared_models import own_columns
from persfl.methods.single_fit import FOLDS, at_once, row_folds
from persfl.training.state import Keep, State
from persfl.types import Array, IntArray

RIDGES = tuple(10.0 ** np.arange(-2.0, 4.0, 0.5))
OTHERS = (0.1, 1.0, 10.0)  # of losses that take a descent each


def dummy_fits(
    learner: Linear,
    rows: Devices,
    *,
    slopes: bool = False,
    ridge: float | str = "auto",
    seed: int = 0,
) -> Array:
    """(devices, size) common coefficients plus each device's own part.

    >>> from persfl.sources import clustered_regression
    >>> rows = clustered_regression(n=20, clusters=2, rows=20, features=3, seed=0)
    >>> models = dummy_fits(Linear(), rows, slopes=True, ridge=0.01)
    >>> bool(np.abs(models - rows.true_weights).max() < 0.01)
    True
    """
    own = own_columns(learner, rows.features, slopes=slopes)
    if ridge != "auto":
        real("ridge", ridge, above=0)
    if learner.kind == "squared":
        return _squared(learner, rows, own, ridge, seed)
    everywhere = np.ones(len(rows.X), dtype=bool)
    if ridge == "auto":
        ridge = _least(learner, rows, own, row_folds(rows, seed))
    return _descended(learner, rows, own, float(ridge), everywhere)


def _least(learner: Linear, rows: Devices, own: IntArray, fold: IntArray) -> float:
    """The ridge whose models predict left-out folds best."""
    folds = [k for k in range(2) if (fold == k).any() and (fold != k).any()]
    found = []
    for ridge in OTHERS:
        missed = 0.0
        for k in folds:
            models = _descended(learner, rows, own, ridge, fold != k)
            missed += _missed(learner, rows, models, fold == k)
        found.append((missed, ridge))
    return float(min(found)[1])


def _missed(learner: Linear, rows: Devices, models: Array, judge: Any) -> float:
    """The summed loss of these rows."""
    left = _with_weights(rows, np.where(judge, rows.weight, 0.0))
    total = left.total
    some = np.flatnonzero(total > 0)
    losses = learner.loss(models[some], left.gather(some))
    return float(total[some] @ np.minimum(losses, 1e12))


def _with_weights(rows: Devices, weight: Array) -> Devices:
    return Devices(rows.X, rows.y, weight, rows.start, rows.ids)


def _squared(
    learner: Linear, rows: Devices, own: IntArray, ridge: float | str, seed: int
) -> Array:
    """In closed form, from sums over each device's rows in each fold."""
    sums = fold_sums(learner, rows, row_folds(rows, seed))
    whole = sums.sum(axis=0)
    if ridge != "auto":
        return _solved(learner, whole, own, float(ridge))
    found = []
    for strength in RIDGES:
        missed = 0.0
        for left in sums:
            models = _solved(learner, whole - left, own, strength)
            with_label = np.column_stack([models, np.full(len(models), -1.0)])
            missed += float(np.einsum("ni,nij,nj", with_label, left, with_label))
        found.append((missed, strength))
    return _solved(learner, whole, own, min(found)[1])


def fold_sums(learner: Linear, rows: Devices, fold: IntArray) -> Array:
    """(folds, devices, size + 1, size + 1) products of columns, the label as the last of them."""
    A = np.column_stack([learner.with_intercept(rows.X), rows.y])
    width = A.shape[1]
    sums = np.zeros((FOLDS, len(rows), width, width))
    weighted = A * rows.weight[:, None]
    for i in range(len(rows)):
        mine = slice(int(rows.start[i]), int(rows.start[i + 1]))
        for k in range(FOLDS):
            some = np.flatnonzero(fold[mine] == k) + mine.start
            sums[k, i] = weighted[some].T @ A[some]
    return sums


def _solved(learner: Linear, sums: Array, own: IntArray, ridge: float) -> Array:
    """Own parts are eliminated device by device."""
    gram = sums[:, :-1, :-1]
    pull = sums[:, :-1, -1]
    penalty = np.full(gram.shape[-1], ridge)
    if learner.intercept:
        penalty[-1] = 0.0  # everybody's level is free
    within = gram[:, own[:, None], own] + ridge * np.eye(len(own))
    across = gram[:, own]
    parts = np.concatenate([across, pull[:, own, None]], axis=2)
    solved = np.linalg.solve(within, parts)  # (devices, own, size + 1)
    down = np.swapaxes(across, 1, 2) @ solved
    left = (gram - down[..., :-1]).sum(axis=0) + np.diag(penalty)
    common = np.linalg.lstsq(left, (pull - down[..., -1]).sum(axis=0), rcond=None)[0]
    models = np.repeat(common[None], len(sums), axis=0)
    models[:, own] += solved[..., -1] - solved[..., :-1] @ common
    return models


class Parts(NamedTuple):
    """What is common (size,), and what is own (devices, own columns)."""

    common: Array
    own: Array


def _descended(
    learner: Linear, rows: Devices, own: IntArray, ridge: float, used: Any
) -> Array:
    """Any other loss: by descent over common and own parts at once."""
    size = learner.size(rows.features)
    common = np.full(size, ridge)
    if learner.intercept:
        common.reshape(learner.classes, -1)[:, -1] = 0.0
    kept = _with_weights(rows, np.where(used, rows.weight, 0.0))
    found = own_parts_of(learner, kept, own, ridge, common)
    models = np.repeat(found.common[None], len(rows), axis=0)
    models[:, own] += found.own
    return models


def own_parts_of(
    learner: Linear,
    rows: Devices,
    own: IntArray,
    ridge: float,
    common: Array,
    begin: Parts | None = None,
) -> Parts:
    """Where the summed loss is least, with penalties of the own parts' squares (`ridge`) and of
    those of what is `common` (size,).
    """
    size = learner.size(rows.features)
    kept = rows
    some = np.flatnonzero(kept.total > 0)
    data = kept.gather(some)
    total = kept.total[some]
    penalty = np.concatenate([common, np.full(len(some) * len(own), ridge)])
    every = total.sum()

    def models_of(v: Array) -> Array:
        models = np.repeat(v[None, :size], len(some), axis=0)
        models[:, own] += v[size:].reshape(len(some), -1)
        return models

    def objective(v: Array) -> tuple[float, Array]:
        models = models_of(v)
        slope = total[:, None] * learner.grad(models, data)
        away = penalty * v
        whole = np.concatenate([slope.sum(axis=0), slope[:, own].ravel()])
        value = total @ learner.loss(models, data) + away @ v
        return value / every, (whole + 2.0 * away) / every

    start = np.zeros(len(penalty))
    if begin is not None:
        start = np.concatenate([begin.common, begin.own[some].ravel()])
    how = {"jac": True, "method": "L-BFGS-B", "options": {"maxiter": 300}}
    found = minimize(objective, start, **how).x
    apart = np.zeros((len(rows), len(own)))
    apart[some] = found[size:].reshape(len(some), -1)
    return Parts(found[:size], apart)


@dataclass(frozen=True)
class Dummies(MethodSettings):
    """One linear model of all rows, with own levels, or own slopes too, for devices."""

    name: ClassVar[str] = "dummies"
    about: ClassVar[str] = "One linear model of all rows with a column per device"
    source: ClassVar[str] = "least squares with dummy variables; Gross, Tibshirani 2016"

    slopes: bool = setting(False, "whether devices have slopes of their own too")
    ridge: float | str = setting(
        "auto", "how far all is shrunk; auto: by left-out rows"
    )

    def needs(self) -> Needs:
        return Needs(
            gradients=True,
            together=True,
            one_process=True,
            leaves="All of its rows.",
        )

    def run(
        self, task: Task, *, stage: str = "final", keep: Keep | None = None
    ) -> State:
        learner = task.learner
        if not isinstance(learner, Linear):
            raise InputError(f"dummies is for linear models. Got {learner!r}.")
        models = dummy_fits(
            learner, task.rows, slopes=self.slopes, ridge=self.ridge, seed=task.seed
        )
        return at_once(task, models, stage=stage, keep=keep)
