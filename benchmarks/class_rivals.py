"""What anybody would try first on a table of classes: base rates, logistic models, mixed models,
boosting, forests and nearest rows. Each is given rows and says chances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from foreign_tables import Rows
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from persfl import PersonalizedClassifier
from persfl.methods import Mixed
from persfl.types import Array, IntArray, Mask

LEAST = 1e-6  # chance
Say = Callable[[Array, IntArray], Array]  # (rows, classes) chances
HALVES = 3  # folds of what a rival chooses among its settings
STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
NEAREST = (5, 15, 40)
WORTH = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # rows' worth of the fleet's base rates
STEPS = 100  # of boosting at most


def base(rows: Rows, classes: int) -> Array:
    """(classes,) how often each is, and one row more."""
    count = np.bincount(rows.y, minlength=classes) + 1 / classes
    return np.asarray(count / count.sum())


def fleet_rates(rows: Rows, classes: int) -> Say:
    """How often each class is."""
    rate = base(rows, classes)
    return lambda X, _: np.tile(rate, (len(X), 1))


def own_counts(rows: Rows, classes: int) -> Array:
    """(devices, classes)"""
    many = int(rows.g.max()) + 1
    key = rows.g * classes + rows.y
    return np.bincount(key, minlength=many * classes).reshape(many, classes) + 0.0


def own_rates(rows: Rows, classes: int) -> Say:
    """How often each class is at the device, and one row more."""
    count = own_counts(rows, classes) + 1 / classes
    rate = count / count.sum(axis=1, keepdims=True)
    return lambda _, g: rate[g]


def shrunk_rates(rows: Rows, classes: int) -> Say:
    """The same with so many rows of the fleet as are best where rows are left out one by one."""
    count = own_counts(rows, classes)
    rate = base(rows, classes)
    mine = count[rows.g]
    mine[np.arange(len(rows.y)), rows.y] -= 1
    total = mine.sum(axis=1)
    here = mine[np.arange(len(rows.y)), rows.y]
    loss = [-np.log((here + s * rate[rows.y]) / (total + s)).mean() for s in WORTH]
    s = WORTH[int(np.argmin(loss))]
    found = (count + s * rate) / (count.sum(axis=1, keepdims=True) + s)
    return lambda _, g: found[g]


def units(X: Array) -> Callable[[Array], Array]:
    """Columns in units of the fleet."""
    mean, spread = X.mean(axis=0), X.std(axis=0)
    spread[spread < 1e-9] = 1.0
    return lambda rows: (rows - mean) / spread


def said_by(model: Any, rows: Array, classes: int) -> Array:
    """Chances, also of classes that the model has not seen."""
    found = np.zeros((len(rows), classes))
    found[:, model.classes_.astype(int)] = model.predict_proba(rows)
    return found


def log_loss(chance: Array, y: IntArray) -> float:
    """The mean over rows."""
    return float(-np.log(np.maximum(chance[np.arange(len(y)), y], LEAST)).mean())


def folds(many: int) -> Iterator[tuple[Mask, Mask]]:
    """Rows to learn from and to choose by."""
    part = np.random.default_rng(0).permutation(many) % HALVES
    for k in range(HALVES):
        yield part != k, part == k


def chosen(
    settings: Sequence[Any],
    make: Callable[[Any], Any],
    Z: Array,
    rows: Rows,
    classes: int,
) -> Any:
    """The setting of the least log loss in folds of the rows to learn from, fitted to them all."""
    loss = np.zeros(len(settings))
    for learn, judge in folds(len(rows.y)):
        if len(np.unique(rows.y[learn])) < 2:
            continue
        for k, setting in enumerate(settings):
            model = make(setting).fit(Z[learn], rows.y[learn])
            loss[k] += log_loss(said_by(model, Z[judge], classes), rows.y[judge])
    return make(settings[int(loss.argmin())]).fit(Z, rows.y)


def logistic(C: float) -> Any:
    """In units of the fleet."""
    return LogisticRegression(C=C, max_iter=300)


def one_logistic(rows: Rows, classes: int) -> Say:
    """One logistic model for all."""
    inside = units(rows.X)
    model = chosen(STRENGTHS, logistic, inside(rows.X), rows, classes)
    return lambda X, _: said_by(model, inside(X), classes)


def dummies(rows: Rows, classes: int) -> Say:
    """The same with a column for each device."""
    inside = units(rows.X)
    each = np.eye(int(rows.g.max()) + 1)
    wide = np.column_stack([inside(rows.X), each[rows.g]])
    model = chosen(STRENGTHS, logistic, wide, rows, classes)
    return lambda X, g: said_by(model, np.column_stack([inside(X), each[g]]), classes)


def own_logistic(rows: Rows, classes: int) -> Say:
    """One for each device, and a row's worth of the fleet's base rates."""
    inside = units(rows.X)
    rate = base(rows, classes)
    models: dict[int, tuple[Any, float]] = {}
    for i in np.unique(rows.g).tolist():
        mine = rows.at(rows.g == i)
        if len(np.unique(mine.y)) < 2:
            model: Any = int(mine.y[0])
        else:
            model = logistic(1.0).fit(inside(mine.X), mine.y)
        models[i] = model, len(mine.y)

    def said(X: Array, g: IntArray) -> Array:
        found = np.tile(rate, (len(X), 1))
        for i, (model, many) in models.items():
            here = g == i
            if here.any():
                alone = (
                    np.eye(classes)[np.full(here.sum(), model)]
                    if isinstance(model, int)
                    else said_by(model, inside(X[here]), classes)
                )
                found[here] = (many * alone + rate) / (many + 1)
        return found

    return said


def boosting(rows: Rows, classes: int, *, told: bool) -> Say:
    """Trees, `told` the device as a category or not; as many steps as are best for rows put by."""

    def wide(X: Array, g: IntArray) -> Array:
        return np.column_stack([X, g]) if told else X

    Z = wide(rows.X, rows.g)
    named = [rows.X.shape[1]] if told else None

    def grower(steps: int) -> Any:
        return HistGradientBoostingClassifier(
            max_iter=steps,
            categorical_features=named,
            random_state=0,
            early_stopping=False,
        )

    learn, judge = next(folds(len(rows.y)))
    steps = STEPS
    if len(np.unique(rows.y[learn])) > 1:
        tried = grower(STEPS).fit(Z[learn], rows.y[learn])
        loss = []
        for each in tried.staged_predict_proba(Z[judge]):
            chance = np.zeros((len(each), classes))
            chance[:, tried.classes_] = each
            loss.append(log_loss(chance, rows.y[judge]))
        steps = int(np.argmin(loss)) + 1
    model = grower(steps).fit(Z, rows.y)
    return lambda X, g: said_by(model, wide(X, g), classes)


def forest(rows: Rows, classes: int) -> Say:
    """A random forest, told the device by columns; a row's worth of base rates to each leaf."""
    each = np.eye(int(rows.g.max()) + 1)
    rate = base(rows, classes)
    model = RandomForestClassifier(200, min_samples_leaf=3, random_state=0)
    model.fit(np.column_stack([rows.X, each[rows.g]]), rows.y)

    def said(X: Array, g: IntArray) -> Array:
        found = said_by(model, np.column_stack([X, each[g]]), classes)
        return (10 * found + rate) / 11

    return said


def neighbours(rows: Rows, classes: int) -> Say:
    """Nearest rows, and one more of base rates."""
    inside = units(rows.X)
    rate = base(rows, classes)
    some = [k for k in NEAREST if k < len(rows.y) // 2] or [1]
    model = chosen(some, KNeighborsClassifier, inside(rows.X), rows, classes)
    near = model.n_neighbors

    def said(X: Array, _: IntArray) -> Array:
        return (near * said_by(model, inside(X), classes) + rate) / (near + 1)

    return said


def glmm(rows: Rows, classes: int, *, effects: str) -> Say:
    """A mixed model of classes, own effects of the variance that the likelihood tells."""
    inside = units(rows.X)
    model = PersonalizedClassifier(method=Mixed(effects=effects), holdout=0)
    return said_at(model, rows, classes, inside)


def said_at(
    model: PersonalizedClassifier,
    rows: Rows,
    classes: int,
    inside: Callable[[Array], Array] = np.asarray,
) -> Say:
    """Chances by models of devices, fitted to these rows."""
    model.fit(inside(rows.X), rows.y, devices=rows.g)

    def said(X: Array, g: IntArray) -> Array:
        found = np.zeros((len(X), classes))
        there = model.predict_proba(inside(X), devices=g)
        found[:, model.classes_.astype(int)] = there
        return found

    return said


RIVALS: dict[str, Callable[[Rows, int], Say]] = {
    "fleet rates": fleet_rates,
    "own rates": own_rates,
    "shrunk rates": shrunk_rates,
    "own logistic": own_logistic,
    "one logistic": one_logistic,
    "dummies": dummies,
    "mixed, levels": lambda rows, classes: glmm(rows, classes, effects="intercept"),
    "mixed, slopes": lambda rows, classes: glmm(rows, classes, effects="diagonal"),
    "boosting, device": lambda rows, classes: boosting(rows, classes, told=True),
    "boosting": lambda rows, classes: boosting(rows, classes, told=False),
    "forest": forest,
    "neighbours": neighbours,
}
