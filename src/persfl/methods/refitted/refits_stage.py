"""Blend of refitted models as a stage of a fit: its models, and who is near whom."""

from __future__ import annotations

import numpy as np

from persfl.devices import Devices
from persfl.evaluation.row_order import RowOrder
from persfl.methods.mixed.linear_stage import record
from persfl.methods.mixed.near_round import one_round_stage
from persfl.methods.refitted.rule import RefitBlend, refit_blend
from persfl.training.state import Keep, Plan, State
from persfl.trust import Trust
from persfl.types import Models, Round


def refit_stage(
    devices: Devices,
    plan: Plan,
    *,
    classes: int,
    order: RowOrder,
    stage: str = "final",
    keep: Keep | None = None,
) -> State:
    """The rule on these devices, kept as a stage."""

    def rule(blank: Trust) -> tuple[Models, Round]:
        found = refit_blend(
            devices, plan.learner, classes=classes, seed=plan.seed, order=order
        )
        return found.models, _record(found, blank)

    return one_round_stage(devices, plan, rule, stage=stage, keep=keep)


def _record(found: RefitBlend, trust: Trust) -> Round:
    """As the linear rule records who is near whom: errors are those of its linear models, of
    classes summed over those that it sees.
    """
    blends = found.view.blends
    told = blends[0]._replace(
        names=found.names,
        shares=found.shares,
        made_of=found.made_of,
        posterior=found.view.posterior,
        centre_error=np.sum([each.centre_error for each in blends], axis=0),
        fleet_error=np.sum([each.fleet_error for each in blends], axis=0),
    )
    return record(told, trust, adapts=False)
