"""Blend as a stage of a fit that can be kept and resumed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from persfl.devices import Devices
from persfl.learners import Linear
from persfl.methods.blend.algorithm import blend
from persfl.methods.blend.offers.descent import blend_networks
from persfl.methods.blend.offers.refits import blend_refits
from persfl.training import Forget, Keep, Pace, Plan, State, resumable
from persfl.traits import has_gradients
from persfl.trust import Trust


def run(
    devices: Devices,
    plan: Plan,
    *,
    budget: int,
    ordered: bool,
    classes: int,
    public: Any = None,
    stage: str = "final",
    keep: Keep | None = None,
) -> State:
    """As `persfl.training.train`. A stage that was cut begins anew and ends the same, since
    nothing is drawn but by the seed.
    """
    keep = keep or Forget()
    state = resumable(keep.last(stage), devices, plan.learner)
    if state is not None and state.r == int(state.trust.notes.get("mix_rounds", -1)):
        return state
    pace = Pace(plan.step_size)
    keep.after(
        stage, plan, State(0, None, Trust(len(devices), devices.start[:0]), pace), None
    )
    settings: dict[str, Any] = {
        "seed": plan.seed,
        "budget": budget,
        "ordered": ordered,
        "classes": classes,
    }
    if isinstance(plan.learner, Linear):
        found = blend(devices, plan.learner, **settings)
    elif has_gradients(plan.learner):
        found = blend_networks(devices, plan.learner, **settings)
    else:
        found = blend_refits(
            devices, plan.learner, public, n_jobs=plan.n_jobs, **settings
        )
    losses = tuple(round_.loss for round_ in found.rounds)
    ends = replace(plan, rounds=len(found.rounds))
    for round_ in found.rounds:
        state = State(
            round_.r + 1, found.models, round_.trust, pace, losses[: round_.r + 1]
        )
        keep.after(stage, ends, state, round_)
    assert state is not None  # there is at least one round
    return state
