"""One gradient boosting of all rows, with the device as a category: what everybody tries first.

y = levels + trees(device, x),     classes: chances = softmax over k of trees_k(device, x)

scikit-learn's histogram gradient boosting grows the trees; a split may send some devices left and
the others right. Of more than 255 devices, which is as many categories as it knows, trees see the
rows alone. With `levels` trees of numbers are grown on what devices' own levels leave, as a mixed
model shrinks those. Of classes as many steps are taken as hidden rows say, up to 100: boosting that
goes on for long is sure of itself where it should not be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from persfl.devices import Devices
from persfl.errors import InputError
from persfl.learners.linear import Linear
from persfl.learners.shared_trees import BoostedModels
from persfl.methods.method_fields import MethodSettings, setting
from persfl.methods.mixed.class_trees import STAGES, GrownClasses, best_stage
from persfl.methods.mixed.grown_trees import grow
from persfl.methods.mixed.reml import mixed_fit
from persfl.methods.protocol import Needs, Task
from persfl.methods.single_fit import at_once, row_folds
from persfl.training.state import Keep, State

KINDS = ("squared", "logistic", "multinomial")


def boosted_fits(learner: Linear, rows: Devices, *, levels: bool) -> BoostedModels:
    """Trees of the whole fleet, beside vectors that are 0 but for own levels."""
    vectors = np.zeros((len(rows), learner.size(rows.features)))
    left = rows.y
    if levels and learner.intercept and len(rows) > 1:
        nothing = np.zeros((len(rows.X), 0))
        bare = Devices(nothing, rows.y, rows.weight, rows.start, rows.ids)
        own = mixed_fit(Linear(intercept=True), bare, "intercept").models[:, 0]
        vectors[:, -1] = own
        left = rows.y - own[rows.owner]
    trees = grow(rows, np.arange(len(rows.X)), left)
    return BoostedModels(vectors, ((1.0, trees),), np.zeros(len(rows), dtype=bool))


def boosted_classes(
    learner: Linear, rows: Devices, classes: int, seed: int
) -> BoostedModels:
    """Trees of each class, beside vectors that say nothing."""
    vectors = np.zeros((len(rows), learner.size(rows.features)))
    alone = np.zeros(len(rows), dtype=bool)
    used = np.flatnonzero(rows.weight > 0)
    if len(np.unique(rows.y[used])) < 2:
        raise InputError("boosting needs rows of at least 2 classes.")
    hidden = row_folds(rows, seed)[used] == 0
    steps = STAGES[-1]
    if hidden.any() and len(np.unique(rows.y[used[~hidden]])) > 1:
        tried = GrownClasses(rows, used[~hidden], classes, steps)
        judge = used[hidden]
        label = rows.y[judge].astype(np.int64)
        best = best_stage([tried.staged(judge)], [label], [rows.weight[judge]])
        steps = STAGES[best]
    found = GrownClasses(rows, used, classes, steps).trees()
    pairs = tuple((1.0, each) for each in found.trees)
    return BoostedModels(vectors, pairs, alone, found.there)


@dataclass(frozen=True)
class Boosting(MethodSettings):
    """Boosted trees of all rows, which know the device as a category."""

    name: ClassVar[str] = "boosting"
    about: ClassVar[str] = "Boosted trees of all rows, with the device as a category"
    source: ClassVar[str] = "Friedman 2001; scikit-learn's histogram gradient boosting"

    levels: bool = setting(
        False, "whether trees of numbers are grown on what own levels leave"
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
        if not isinstance(learner, Linear) or learner.kind not in KINDS:
            what = "boosting is for squared loss or classes, beside linear models."
            raise InputError(f"{what} Got {learner!r}.")
        if not task.rows.total.sum() > 0:
            raise InputError("boosting needs rows. Got none.")
        if learner.kind == "squared":
            models = boosted_fits(learner, task.rows, levels=self.levels)
        else:
            classes = max(task.classes, 2)
            models = boosted_classes(learner, task.rows, classes, task.seed)
        return at_once(task, models, stage=stage, keep=keep)
