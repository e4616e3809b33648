"""Blend of refitted models as a stage of a fit: its models, and who is near whom."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from persfl.devices import Devices
from persfl.evaluation.row_order import RowOrder
from persfl.methods.mixed.linear_stage import record
from persfl.methods.refitted.rule import RefitBlend, refit_blend
from persfl.training.state import Forget, Keep, Pace, Plan, State, resumable
from persfl.trust import Trust
from persfl.types import Round


def refit_stage(
    devices: Devices,
    plan: Plan,
    *,
    classes: int,
    order: RowOrder,
    stage: str = "final",
    keep: Keep | None = None,
) -> State:
    """As `persfl.training.train`. A stage that was cut begins anew and ends the same, since
    nothing is drawn but by the seed.
    """
    keep = keep or Forget()
    state = resumable(keep.last(stage), devices, plan.learner)
    if state is not None and state.r == 1:
        return state
    pace = Pace(plan.step_size)
    n = len(devices)
    keep.after(stage, plan, State(0, None, Trust(n, devices.start[:0]), pace), None)
    found = refit_blend(
        devices,
        plan.learner,
        classes=classes,
        seed=plan.seed,
        order=order,
    )
    round_ = _record(found, Trust(n, np.arange(n)))
    state = State(1, found.models, round_.trust, pace, (round_.loss,))
    keep.after(stage, replace(plan, rounds=1), state, round_)
    return state


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
