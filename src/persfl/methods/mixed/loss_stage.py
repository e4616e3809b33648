"""The default rule for counts and robust losses as a stage of a fit."""

from __future__ import annotations

from persfl.devices import Devices
from persfl.evaluation.row_course import found_order
from persfl.evaluation.row_order import RowOrder
from persfl.learners.linear import Linear
from persfl.methods.mixed.linear_stage import models_of, record
from persfl.methods.mixed.loss_rule import loss_blend
from persfl.methods.mixed.near_round import one_round_stage
from persfl.training.state import Keep, Plan, State
from persfl.trust import Trust
from persfl.types import Models, Round


def loss_stage(
    devices: Devices,
    plan: Plan,
    learner: Linear,
    *,
    order: RowOrder | None = None,
    trees: bool = True,
    stage: str = "final",
    keep: Keep | None = None,
) -> State:
    """The rule on these devices, kept as a stage."""

    def rule(blank: Trust) -> tuple[Models, Round]:
        found = loss_blend(
            devices,
            learner,
            seed=plan.seed,
            order=found_order(devices, order or RowOrder()),
            trees=trees,
        )
        return models_of(found, learner.intercept), record(found, blank)

    return one_round_stage(devices, plan, rule, stage=stage, keep=keep)
