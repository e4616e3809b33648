"""Trees for the whole fleet and its classes: boosting with the device as a category, and without.

scikit-learn grows a tree for each class and step (for two classes one). Boosting that goes on for
long is sure of itself where it should not be; how many steps are good is told by hidden rows. Few
rows of many devices split by device say little of each: trees that are not told it can be better.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from persfl.devices import Devices
from persfl.learners.shared_trees import ClassTrees, spread_classes
from persfl.methods.mixed.class_fits import log_chances
from persfl.methods.mixed.class_hidden import JudgedRows
from persfl.methods.mixed.grown_trees import CATEGORIES, read_trees, threads_for
from persfl.methods.mixed.linear_rule import ENOUGH
from persfl.methods.mixed.log_pool import pool_shares
from persfl.types import Array, IntArray, Mask

STAGES = (5, 10, 20, 30, 50, 70, 100)  # steps of boosting that are tried
# what log chances are multiplied by when stages are compared for a pool: late stages make few
# mistakes and are far too sure, and in a pool they have a share below 1
CALMER = 0.5
# trees with less of a share on the first rows hidden are not worth their time
WORTH = 0.02


class _OneClass:
    """Trees of one class, as `read_trees` wants them."""

    def __init__(self, trees: Any, level: float) -> None:
        self._predictors = trees
        self._baseline_prediction = level


class GrownClasses:
    """Boosting of some rows, that can be asked at each of the `STAGES`, and is `told` the device or
    not.
    """

    def __init__(
        self,
        rows: Devices,
        which: IntArray,
        classes: int,
        steps: int,
        *,
        told: bool = True,
    ) -> None:
        self.classes = classes
        self._rows = rows
        self._several = told and len(rows) <= CATEGORIES
        self._known = np.unique(rows.owner[which])
        self._grower = HistGradientBoostingClassifier(
            categorical_features=[0] if self._several else None,
            max_iter=steps,
            early_stopping=False,
            random_state=0,
        )
        weight = rows.weight[which]
        # bins of rows that weigh alike need no weighted quantiles, which are slow
        alike = bool((weight == weight[0]).all())
        wide = self._wide(which)
        with threads_for(len(wide)):
            self._grower.fit(
                wide, rows.y[which], sample_weight=None if alike else weight
            )

    def _wide(self, which: IntArray) -> Array:
        owner = self._rows.owner[which].astype(np.float64)
        if self._several:
            owner = np.where(np.isin(owner, self._known), owner, np.nan)
        else:
            owner = np.zeros(len(which))
        return np.column_stack([owner, self._rows.X[which]])

    @property
    def _there(self) -> IntArray:
        return np.asarray(self._grower.classes_, dtype=np.int64)

    def staged(self, which: IntArray) -> Array:
        """(stages, rows, classes) log chances of these rows."""
        found = []
        wide = self._wide(which)
        with threads_for(len(wide)):
            for step, raw in enumerate(self._grower.staged_decision_function(wide), 1):
                if step in STAGES:
                    each = raw[:, None] if raw.ndim == 1 else raw
                    found.append(spread_classes(each, self._there, self.classes))
        return np.stack(found)

    def trees(self) -> ClassTrees:
        """As plain arrays."""
        place = np.full(len(self._rows), -1)
        if self._several:
            place[self._known] = np.arange(len(self._known))
        base = np.ravel(self._grower._baseline_prediction)
        found = []
        for k, level in enumerate(base):
            one = [[step[k]] for step in self._grower._predictors]
            found.append(read_trees(_OneClass(one, level), place))
        return ClassTrees(tuple(found), self._there, self.classes)


def best_stage(
    log: Sequence[Array],
    label: Sequence[IntArray],
    weight: Sequence[Array],
    *,
    share: float = 1.0,
) -> int:
    """The place of the best of `STAGES` by the log loss of hidden rows at this share, fold by fold;
    of those that all folds have reached.
    """
    reached = min(len(each) for each in log)
    loss = np.zeros(reached)
    for each, y, w in zip(log, label, weight, strict=True):
        said = log_chances(share * each[:reached])
        loss -= said[:, np.arange(len(y)), y] @ w
    return int(loss.argmin())


class JudgedTrees(NamedTuple):
    """Trees of all rows, and the log chances (rows, classes) by trees that have not seen them of
    the first of the hidden rows: those of as many folds as are enough.
    """

    trees: ClassTrees
    said: Array


def judged_trees(
    rows: Devices,
    learned: Sequence[Mask],
    judged: JudgedRows,
    log: Array,
    belief: Array,
    *,
    told: bool,
) -> JudgedTrees | None:
    """Trees, `told` the device or not; none where the first rows hidden show no use for them beside
    the offers whose log chances are `log` (rows, offers, classes). `belief` is in all of these.
    """
    classes = log.shape[-1]
    if not all(len(np.unique(rows.y[known])) > 1 for known in learned):
        return None
    if not len(judged.row):
        return None
    staged: list[Array] = []
    labels: list[IntArray] = []
    weights: list[Array] = []
    steps = STAGES[-1]
    # of ordered rows a fold may hide none: devices with few rows have fewer parts
    for k, known in enumerate(learned):
        mine = judged.fold == k
        if not mine.any():
            continue
        grown = GrownClasses(rows, np.flatnonzero(known), classes, steps, told=told)
        staged.append(grown.staged(judged.row[mine]))
        labels.append(judged.label[mine])
        weights.append(judged.weight[mine])
        if len(staged) == 1:
            stage = best_stage(staged, labels, weights, share=CALMER)
            tried = np.concatenate([log[mine], staged[0][stage][:, None]], axis=1)
            if pool_shares(tried, labels[0], weights[0], belief)[-1] < WORTH:
                return None
            steps = STAGES[min(stage + 1, len(STAGES) - 1)]  # further is too far
        if sum(map(len, labels)) >= ENOUGH:
            break
    stage = best_stage(staged, labels, weights, share=CALMER)
    said = np.concatenate([each[stage] for each in staged])
    every = np.arange(len(rows.y))
    grown = GrownClasses(rows, every, classes, STAGES[stage], told=told)
    return JudgedTrees(grown.trees(), said)
