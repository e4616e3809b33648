"""What methods with shared models have in common: who takes part, averaging, a step that is halved
where losses grow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from persfl.checks import real, whole
from persfl.devices import Devices
from persfl.errors import Diverged, InputError
from persfl.fleets.engine import cannot_share
from persfl.fleets.in_process import InProcessFleet
from persfl.fleets.rows import diverged
from persfl.methods.loop_plan import loop_plan
from persfl.methods.protocol import Task
from persfl.proposers import GradientStep
from persfl.seeds import Stream, distinct, stream
from persfl.training import HALVINGS, Forget, Keep, Pace, State
from persfl.training.state import checked_state
from persfl.traits import has_gradients, has_statistics
from persfl.trust import Trust
from persfl.types import Array, Choice, IntArray, Model, Round


def all_devices(fleet: InProcessFleet) -> Devices:
    """The rows of the whole fleet, whose models must be vectors."""
    if isinstance(fleet.learner, (list, tuple)) or not has_gradients(fleet.learner):
        raise cannot_share(fleet.learner)
    return all_rows(fleet)


def all_rows(fleet: InProcessFleet) -> Devices:
    """The rows of the whole fleet."""
    if fleet.home.source is not None:
        raise InputError("baselines with shared models need static data. Got a stream.")
    return fleet.home.static


def participants(fleet: InProcessFleet, share: float, r: int, seed: int) -> IntArray:
    """A random share of the devices, each set equally likely."""
    size = max(1, round(real("share", share, above=0, most=1) * fleet.n))
    whole("share of devices", size, least=1, most=fleet.n)
    drawn = distinct(
        stream(seed, "participants", r),
        np.zeros(1, dtype=np.int64),
        np.array([fleet.n]),
        size,
    )
    return np.asarray(drawn[0])


def averaged(
    fleet: InProcessFleet, model: Model, who: IntArray, place: Stream
) -> Model:
    """The mean of these devices' steps from one model, weighted by their rows: what a round of
    FedAvg makes of it.
    """
    answers = fleet.stepped(
        np.repeat(model[None], len(who), axis=0), who, place.at(who)
    )
    weight = fleet.home.static.total[who]
    return fleet.learner.mix(answers, weight / weight.sum())


def hold(fleet: InProcessFleet, models: Array, r: int) -> None:
    """Give every target its model after round `r`, or stop where steps have run away."""
    lost = ~np.isfinite(models).all(axis=-1)
    if lost.any():
        raise diverged(
            r, fleet.ids[int(fleet.targets[np.argmax(lost)])], fleet.proposer.advice()
        )
    # running statistics belong to the target here too
    if has_statistics(fleet.learner):
        own = fleet.home.training
        models = np.stack(
            [fleet.learner.settled(model, own[t]) for t, model in enumerate(models)]
        )
    fleet.models = models


def quiet_round(fleet: InProcessFleet, r: int, trust: Trust) -> Round:
    """The record of a round in which no target asked anybody: only its own loss is known."""
    T = len(fleet.targets)
    nobody, nothing = np.empty((T, 0), dtype=np.int64), np.empty((T, 0))
    losses = fleet.probe(nobody, r).losses
    return Round(r, nobody, losses, nothing, Choice(nobody, nothing, np.ones(T)), trust)


COMMON = (
    "Devices of a federation answer questions about their askers' models; they take no steps from"
    " a common one."
)
# a mean loss that ends so many times above its first round's has run away somewhere
WORSE = 1.1
Descent = Callable[[InProcessFleet], Iterator[Round]]


def descend(
    task: Task,
    run: Descent,
    *,
    rounds: int,
    step_size: float,
    stage: str,
    keep: Keep | None,
) -> State:
    """The state after the last of a generator's rounds.

    Half the step is taken as long as it makes losses grow. A stage that was cut begins anew and
    ends the same, since nothing is drawn but by the seed.
    """
    keep = keep or Forget()
    known = checked_state(keep.last(stage), task.learner, task.n, task.features)
    if known is not None and known.r == rounds:
        return known
    plan = loop_plan(task, rounds, step_size=step_size)
    pace = Pace(step_size)
    for _ in range(HALVINGS):
        fleet = stepping_fleet(task, pace.step_size)
        keep.after(stage, plan, State(0, fleet.models, Trust.blank(fleet), pace), None)
        losses: list[Array] = []
        try:
            for round_ in run(fleet):
                losses.append(round_.loss)
                state = State(
                    round_.r + 1, fleet.models, round_.trust, pace, tuple(losses)
                )
                keep.after(stage, plan, state, round_)
            if losses[-1].mean() <= WORSE * losses[0].mean():
                return replace(state, models=np.asarray(state.models).copy())
        except Diverged:
            pass
        pace = replace(
            pace,
            step_size=pace.step_size / 2,
            halved=(*pace.halved, pace.step_size),
        )
    grew = f"steps from {step_size:g} down to {pace.step_size:g} made losses grow."
    raise Diverged(grew, round=0, device=None)


def stepping_fleet(task: Task, step_size: float) -> InProcessFleet:
    """A fleet whose devices can step from a model that is not theirs."""
    fleet = task.fleet(GradientStep(step_size))
    if not isinstance(fleet, InProcessFleet):
        raise InputError(f"{COMMON} Use method='blend', 'paper' or 'kin'.")
    return fleet


def at_once(
    task: Task, models: Any, *, stage: str, keep: Keep | None, step_size: float = 1.0
) -> State:
    """The state of a method without rounds: models, and nobody asked."""
    everyone = np.arange(task.n)
    state = State(0, models, Trust(task.n, everyone), Pace(step_size))
    if keep is not None:
        keep.after(stage, loop_plan(task, 0), state, None)
    return state


def for_everybody(model: Model, n: int) -> Any:
    """One model, for every device."""
    if isinstance(model, np.ndarray):
        return np.repeat(model[None], n, axis=0)
    return [model] * n
