"""One gradient boosting of all rows, with the device as a category: what everybody tries first.

y = levels + trees(device, x)

scikit-learn's HistGradientBoostingRegressor grows the trees; a split may send some devices left and
the others right. Of more than 255 devices, which is as many categories as it knows, trees see the
rows alone. With `levels` they are grown on what devices' own levels leave, as a mixed model shrinks
those.
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
from persfl.methods.mixed.grown_trees import grow
from persfl.methods.protocol import Needs, Task
from persfl.methods.restricted_likelihood import mixed_fit
from persfl.methods.single_fit import at_once
from persfl.training.state import Keep, State


def boosted_fits(learner: Linear, rows: Devices, *, levels: bool) -> BoostedModels:
    """Trees of the whole fleet, beside vectors that are 0 but for own levels."""
    if not rows.total.sum() > 0:
        raise InputError("boosting needs rows. Got none.")
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


@dataclass(frozen=True)
class Boosting(MethodSettings):
    """Boosted trees of all rows, which know the device as a category."""

    name: ClassVar[str] = "boosting"
    about: ClassVar[str] = (
        "Boosted trees of all rows, with the device as a category; of numbers"
    )
    source: ClassVar[str] = "Friedman 2001; scikit-learn's histogram gradient boosting"

    levels: bool = setting(False, "whether trees are grown on what own levels leave")

    def needs(self) -> Needs:
        return Needs(
            gradients=True, together=True, numbers=True, leaves="All of its rows."
        )

    def run(
        self, task: Task, *, stage: str = "final", keep: Keep | None = None
    ) -> State:
        learner = task.learner
        if not isinstance(learner, Linear) or learner.kind != "squared":
            what = "boosting is for squared loss, beside linear models."
            raise InputError(f"{what} Got {learner!r}.")
        models = boosted_fits(learner, task.rows, levels=self.levels)
        return at_once(task, models, stage=stage, keep=keep)
