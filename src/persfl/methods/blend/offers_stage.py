"""Blend as a stage of a fit that can be kept and resumed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from persfl.devices import Devices
from persfl.errors import InputError
from persfl.evaluation.row_order import RowOrder, hidden_folds
from persfl.methods.blend.algorithm import blend_over, hidden_sites, local_site
from persfl.methods.blend.blend_settings import USUAL
from persfl.training import Forget, Keep, Pace, Plan, State, resumable
from persfl.trust import Trust
from persfl.types import Array


def _rounds_of(trust: Trust) -> int:
    """How many rounds a blend that was kept has in all, by its notes; -1 where it says nothing."""
    notes = trust.notes
    if "mix_rounds" not in notes:
        return -1
    rounds = notes["mix_rounds"]
    nothing = np.zeros(0)
    mix = notes.get("mix", nothing)
    names = notes.get("mix_names", nothing)
    if (
        (names.ndim, names.dtype.kind, mix.dtype.kind) != (1, "U", "f")
        or mix.shape != (trust.n, len(names))
        or (rounds.ndim, rounds.dtype.kind) != (0, "i")
    ):
        raise InputError(
            "the run that was kept is not of a blend: its notes are of another kind. Use another"
            " folder."
        )
    return int(rounds)


def blend_stage(
    devices: Devices,
    plan: Plan,
    *,
    budget: int,
    order: RowOrder,
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
    if state is not None and state.r == _rounds_of(state.trust):
        return state
    pace = Pace(plan.step_size)
    keep.after(
        stage, plan, State(0, None, Trust(len(devices), devices.start[:0]), pace), None
    )
    parts = USUAL.class_folds if classes and not order.ordered else USUAL.folds
    folds = [] if order.plain else hidden_folds(devices, order, parts, seed=plan.seed)
    site = local_site(
        devices,
        plan.learner,
        public,
        seed=plan.seed,
        ordered=order.ordered,
        classes=classes,
        n_jobs=plan.n_jobs,
        compute=plan.compute,
        judges=not folds,
    )
    hidden = None
    if folds:
        hidden = hidden_sites(
            devices,
            plan.learner,
            public,
            folds,
            seed=plan.seed,
            classes=classes,
            n_jobs=plan.n_jobs,
            compute=plan.compute,
        )
    found = blend_over(site, budget=budget, hidden=hidden)
    losses = tuple(round_.loss for round_ in found.rounds)
    ends = replace(plan, rounds=len(found.rounds))
    for round_ in found.rounds:
        state = State(
            round_.r + 1, found.models, round_.trust, pace, losses[: round_.r + 1]
        )
        keep.after(stage, ends, state, round_)
    assert state is not None  # there is at least one round
    return state
