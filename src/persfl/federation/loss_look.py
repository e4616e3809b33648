"""A device's last look at a model of counts or under a robust loss (see `last_look`): sums and
units that others have made up can spoil what it is handed, and only its own rows can tell.

Beside it stand models that nobody else has a say in, in units of its own rows: its level, and
slopes as well, each judged on rows that it has not seen. The model that was handed out has seen
these, which flatters it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from persfl.federation.last_look import MixLosses, loses_much
from persfl.learners.linear import Linear
from persfl.methods.mixed.hidden_rows import HiddenRows
from persfl.methods.mixed.made_up_rows import has_strayed, rolled_columns
from persfl.methods.mixed.population import Population
from persfl.methods.mixed.working_rows import usual_score
from persfl.types import Array, Data

SLOPES = (0.0, 1.0)  # variances of slopes that are tried


class HandedModel(NamedTuple):
    """A model as it was handed out, and (folds, size) what it is without the rows of each fold."""

    model: Array
    folds: Array


class KeptModel(NamedTuple):
    """The model that a device ends with, and whether it is that of its own rows alone."""

    model: Array
    own: bool


def kept_model(
    learner: Linear, rows: Data, hidden: HiddenRows, handed: HandedModel
) -> KeptModel:
    """The model that was handed out, or that of own rows alone.

    >>> X = np.linspace(-1.0, 1.0, 40)[:, None]
    >>> rows = Data(X, 2.0 * X[:, 0] + 0.1 * np.tile([1.0, -1.0], 20))
    >>> parts = HiddenRows(np.zeros(40, dtype=int), [])
    >>> robust = Linear("huber", intercept=True)
    >>> each = [HandedModel(np.array([w, 0.0]), np.zeros((0, 2))) for w in (1.9, -3.0)]
    >>> [kept_model(robust, rows, parts, one).own for one in each]
    [False, True]
    """
    level = _lost(learner, rows, own_model(learner, rows, 0.0))
    pairs = _pairs(rows, hidden)
    many = max(sum(float(seen.weight.sum()) for _, seen, _ in pairs), 1e-300)
    lost = judged = _lost(learner, rows, handed.model)
    missed = np.full(len(SLOPES), np.inf)
    if pairs:
        mixes = [(seen, handed.folds[k]) for _, seen, k in pairs]
        judged = _summed(learner, mixes) / many
        missed = np.array([_missed(learner, pairs, each) for each in SLOPES]) / many
    lost = max(lost, judged + _strayed(learner, rows, handed))
    best = int(np.argmin(missed))
    alone = float(missed[best])
    # few counts are alike by luck even where they vary
    spread, alike = (0.0, level) if learner.kind == "poisson" else (level, 0.0)
    if loses_much(MixLosses(lost, lost, alone, spread, alike, rows.rows)):
        return KeptModel(own_model(learner, rows, SLOPES[best]), True)
    return KeptModel(handed.model, False)


def _strayed(learner: Linear, rows: Data, handed: HandedModel) -> float:
    """What the model loses at made-up rows, where folds say the labels, if it is unlike them."""
    X = rolled_columns(rows.X)
    scores = learner.scores(np.vstack([handed.model, handed.folds]), X)
    if not has_strayed(scores[0], scores[1:]):
        return 0.0
    with np.errstate(over="ignore"):
        said = learner.predict(handed.folds.mean(axis=0), X)
    return _lost(learner, Data(X, said, rows.weight), handed.model)


def own_model(learner: Linear, rows: Data, slopes: float) -> Array:
    """The model of these rows alone; slopes have this variance, where columns and labels vary as
    much as 1.
    """
    level = int(learner.intercept)
    middle = float(np.median(rows.y)) if rows.rows else 0.0
    away = np.abs(rows.y - middle)
    spread = float(np.median(away) or away.mean() or 1.0) if rows.rows else 1.0
    if learner.kind == "poisson":
        counts = float(rows.weight @ rows.y)
        middle, spread = usual_score(counts, float(rows.weight.sum())), 1.0
    wide = rows.X.std(axis=0) if rows.rows else np.ones(rows.X.shape[1])
    size = spread / np.where(wide > 0, wide, 1.0)
    centre = np.append(np.full(level, middle), np.zeros(len(size)))
    variance = np.append(np.full(level, spread**2), slopes * size**2)
    nobody = Population(
        names=np.array(["own"]),
        shares=np.ones(1),
        centre=centre[None],
        Sigma=np.diag(variance)[None],
        usual=np.array([1.0 / spread**2]),
        alike=np.array([2.0]),
        centres=np.zeros((0, len(centre))),
        axes=np.zeros((0, 0)),
    )
    return nobody.newcomer(rows.X, rows.y, rows.weight, learner)


def _pairs(rows: Data, hidden: HiddenRows) -> list[tuple[Data, Data, int]]:
    """Rows that a fold learns from, those that it hides, and which fold it is."""
    found = []
    for k, fold in enumerate(hidden.folds):
        rest, seen = (
            rows.take(np.flatnonzero(np.isin(hidden.part, which))) for which in fold
        )
        if seen.rows:
            found.append((rest, seen, k))
    return found


def _missed(
    learner: Linear, pairs: Sequence[tuple[Data, Data, int]], slopes: float
) -> float:
    """The loss of own rows alone on rows that they have not seen, summed."""
    models = [(seen, own_model(learner, rest, slopes)) for rest, seen, _ in pairs]
    return _summed(learner, models)


def _summed(learner: Linear, each: Sequence[tuple[Data, Array]]) -> float:
    """The losses of all these rows by their models."""
    return sum(
        float(rows.weight.sum()) * _lost(learner, rows, model) for rows, model in each
    )


def _lost(learner: Linear, rows: Data, model: Array) -> float:
    """The mean loss above that of the best score of each row."""
    best = 0.0
    if learner.kind == "poisson":
        each = rows.y * (1.0 - np.log(np.maximum(rows.y, 1e-300)))
        best = float(rows.weight @ each / rows.weight.sum())
    return float(learner.loss(model, rows)) - best
