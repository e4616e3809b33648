"""Blend as a method: settings, and the run of `persfl.methods.blend`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from persfl.checks import whole
from persfl.device_checks import refuse_rowless
from persfl.evaluation.row_course import found_order
from persfl.evaluation.row_order import RowOrder
from persfl.learners.estimator import Estimator
from persfl.learners.linear import Linear
from persfl.learners.tree import Tree
from persfl.methods.loop_plan import loop_plan
from persfl.methods.method_fields import MethodSettings, setting
from persfl.methods.mixed import OF_SCORES, PANEL
from persfl.methods.protocol import Needs, Task
from persfl.training.state import Keep, Plan, State, rounds_for
from persfl.types import Array

MOST = 10**9  # questions that a budget may be


@dataclass(frozen=True)
class Blend(MethodSettings):
    """Mix what own rows, the fleet and neighbours offer, by the evidence of own rows."""

    name: ClassVar[str] = "blend"
    source: ClassVar[str] = "persfl, docs/blend.md"
    about: ClassVar[str] = (
        "Models are mixed from what own rows, the fleet and neighbours offer"
    )

    budget: int = setting(
        640, "questions that a device may ask, where models are blended by questions"
    )
    trees: bool = setting(True, "offer trees of the whole fleet beside linear models")
    panel: int = setting(
        PANEL,
        "devices, drawn by the seed, that a larger fleet of linear models learns from",
    )

    def needs(self) -> Needs:
        leaves = (
            "Linear regressions: sums of products of columns and the label over parts of its rows."
            " Small models of classes: slopes and curvatures of their log chance, and its models."
            " Others: its answers to questions, steps on its rows from models that it is sent, or"
            " labels of public points; and over a federation how well offers fit its rows."
        )
        return Needs(units=("shared",), questions=True, leaves=leaves)

    def questions(self) -> int:
        """The budget, if it is one."""
        return whole("budget", self.budget, least=1, most=MOST)

    def panel_size(self) -> int:
        """The panel, if it is one."""
        return whole("panel", self.panel, least=2)

    def seen_order(self, task: Task) -> RowOrder:
        """What offers are judged by: the order that was told, or else what rows show of one.

        Tables of classes are often sorted by class: their order says nothing of time.
        """
        looks = isinstance(task.learner, Linear | Estimator | Tree)
        if task.classes or not looks:
            return task.order
        return found_order(task.rows, task.order)

    def run(
        self, task: Task, *, stage: str = "final", keep: Keep | None = None
    ) -> State:
        return self._run(task, stage=stage, keep=keep, order=task.order)

    def go_on(self, task: Task, state: State) -> State:
        """Blended anew from the rows as they are now, with folds that are blocks of time.

        Rounds and losses are those of all calls so far, trust that of this one.
        """
        order = replace(task.order, ordered=True)
        new = self._run(task, stage="final", keep=None, order=order)
        losses = (*(_wider(loss, task.n) for loss in state.losses), *new.losses)
        return replace(new, r=state.r + new.r, losses=losses)

    def _run(
        self, task: Task, *, stage: str, keep: Keep | None, order: RowOrder
    ) -> State:
        # each rule has many files: they are loaded where it runs
        plan = loop_plan(task, rounds_for("auto", task.learner))
        learner = task.learner
        refuse_rowless(task.rows)
        if isinstance(learner, Linear):
            return self._linear(
                task, learner, plan, stage=stage, keep=keep, order=order
            )
        if isinstance(learner, Estimator | Tree):
            from persfl.methods.refitted.refits_stage import refit_stage

            found = order if task.classes else found_order(task.rows, order)
            return refit_stage(
                task.rows,
                plan,
                classes=task.classes,
                order=found,
                stage=stage,
                keep=keep,
            )
        from persfl.methods.blend.offers_stage import blend_stage

        return blend_stage(
            task.rows,
            plan,
            budget=self.questions(),
            order=order,
            classes=task.classes,
            public=task.public,
            stage=stage,
            keep=keep,
        )

    def _linear(
        self,
        task: Task,
        learner: Linear,
        plan: Plan,
        *,
        stage: str,
        keep: Keep | None,
        order: RowOrder,
    ) -> State:
        """Linear models, each kind of labels by its own rule."""
        if learner.kind == "squared":
            from persfl.methods.mixed.linear_stage import linear_stage

            return linear_stage(
                task.rows,
                plan,
                level=learner.intercept,
                order=order,
                trees=self.trees,
                panel=self.panel_size(),
                stage=stage,
                keep=keep,
            )
        if learner.kind in OF_SCORES:
            from persfl.methods.mixed.loss_stage import loss_stage

            return loss_stage(
                task.rows,
                plan,
                learner,
                order=order,
                trees=self.trees,
                stage=stage,
                keep=keep,
            )
        from persfl.methods.mixed.class_stage import class_stage

        return class_stage(
            task.rows,
            plan,
            learner,
            classes=max(task.classes, 2),
            order=order,
            trees=self.trees,
            stage=stage,
            keep=keep,
        )


def _wider(losses: Array, n: int) -> Array:
    """Losses of devices that were there, and NaN for those that were not."""
    return np.append(losses, np.full(n - len(losses), np.nan))
