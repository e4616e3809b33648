"""Blend as a stage of a fit that can be kept and resumed."""

from __future__ import annotations

from dataclasses import replace

from persfl.devices import Devices
from persfl.methods.blend.algorithm import blend_over, local_site
from persfl.training import Forget, Keep, Pace, Plan, State, resumable
from persfl.trust import Trust
from persfl.types import Array


def blend_stage(
    devices: Devices,
    plan: Plan,
    *,
    budget: int,
    ordered: bool,
    classes: int,
    public: Array | None = None,
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
    site = local_site(
        devices,
        plan.learner,
        public,
        seed=plan.seed,
        ordered=ordered,
        classes=classes,
        n_jobs=plan.n_jobs,
    )
    found = blend_over(site, budget=budget)
    losses = tuple(round_.loss for round_ in found.rounds)
    ends = replace(plan, rounds=len(found.rounds))
    for round_ in found.rounds:
        state = State(
            round_.r + 1, found.models, round_.trust, pace, losses[: round_.r + 1]
        )
        keep.after(stage, ends, state, round_)
    assert state is not None  # there is at least one round
    return state
