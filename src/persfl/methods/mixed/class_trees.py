"""Trees for the whole fleet and its classes: boosting with the device as a category.

scikit-learn grows a tree for each class and step (for two classes one). Boosting that goes on for
long is sure of itself where it should not be; how many steps are good is told by hidden rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from persfl.devices import Devices
from persfl.learners.shared_trees import ClassTrees, spread_classes
from persfl.methods.mixed.class_fits import log_chances
from persfl.methods.mixed.grown_trees import CATEGORIES, read_trees, threads_for
from persfl.types import Array, IntArray

STAGES = (5, 10, 20, 30, 50, 70, 100)  # steps of boosting that are tried
# what log chances are multiplied by when stages are compared: late ones make few mistakes and are
# far too sure, and in a pool they have a share below 1 anyway
CALMER = (1.0, 0.8, 0.6, 0.4)


class _OneClass:
    """Trees of one class, as `read_trees` wants them."""

    def __init__(self, trees: Any, level: float) -> None:
        self._predictors = trees
        self._baseline_prediction = level


class GrownClasses:
    """Boosting of some rows, that can be asked at each of the `STAGES`."""

    def __init__(
        self, rows: Devices, which: IntArray, classes: int, steps: int
    ) -> None:
        self.classes = classes
        self._rows = rows
        self._several = len(rows) <= CATEGORIES
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
    log: Sequence[Array], label: Sequence[IntArray], weight: Sequence[Array]
) -> int:
    """The place of the best of `STAGES` by the log loss of hidden rows, fold by fold, each as
    sure of itself as is best for it; of those that all folds have reached.
    """
    reached = min(len(each) for each in log)
    loss = np.zeros((len(CALMER), reached))
    for each, y, w in zip(log, label, weight, strict=True):
        for k, factor in enumerate(CALMER):
            said = log_chances(factor * each[:reached])
            loss[k] -= said[:, np.arange(len(y)), y] @ w
    return int(loss.min(axis=0).argmin())
