"""A run of the loop that looks after itself: it chooses a step size, halves one that diverges,
and can be kept and resumed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from persfl.checks import real, whole
from persfl.devices import Devices
from persfl.errors import Diverged, InputError
from persfl.fleets import ArrayFleet
from persfl.learners import Linear
from persfl.loop import personalize
from persfl.rules.rule import finished
from persfl.samplers import Nobody, Uniform
from persfl.traits import has_gradients, keeps_steps, traits_of
from persfl.trust import Trust
from persfl.types import Adopter, Array, Learner, Round, Sampler

# The longest step and, with many features, steps times features: the more features, the more a step
# can overshoot. In shared units;
# measured on the tables and generators named in docs/settings.md. A step that is too long is
# halved, so boldness costs little.
STEP_SIZES = {
    "squared": (0.1, 1.0),
    "huber": (0.2, 2.0),
    "absolute": (0.05, 1.0),
    "logistic": (4.0, 40.0),
    "multinomial": (4.0, 40.0),
    "poisson": (0.1, 1.0),
}
NETWORK_STEPS = {"squared": 0.1, "absolute": 0.1, "cross_entropy": 0.5, "logistic": 0.5}
# a median loss this many times its start means the steps are too long, though nothing overflows
GROWTH = 10.0
# so does a loss this many times its start on more than this share of the devices
RUNAWAY, FEW = 100.0, 0.02
# after so many halvings of which none helped, it is not the steps: peers are unlike
GIVE_UP = 10
HALVINGS = 30
# an answer to a refit is a complete model, so fewer rounds do
PEERS, STEP_ROUNDS, REFIT_ROUNDS = 20, 100, 20
KIN_ROUNDS = 400  # at most: kin stops asking when it is done


@dataclass(frozen=True)
class Plan:
    """What a run is made of; `proposer` makes the proposer for a step size."""

    learner: Learner
    proposer: Callable[[float], Any]
    step_size: float
    sampler: Sampler
    adopter: Adopter
    rounds: int
    seed: int
    n_jobs: int | None = 1
    compute: str | None = None  # where steps are computed, as torch names it


@dataclass(frozen=True)
class Pace:
    """A step size, those that were too large before it, and whether it is well below them.

    `unlike`: losses grew whatever the step size, because the peers' answers do not fit; then growth
    is let pass.
    """

    step_size: float
    halved: tuple[float, ...] = ()
    safe: bool = False
    unlike: bool = False


@dataclass(frozen=True, eq=False)
class State:
    """Everything a run needs to go on: the models and trust after round `r - 1`, and the step
    size that led there.
    """

    r: int
    models: Any
    trust: Trust
    pace: Pace
    # (targets,) each: own losses at the start of every round so far
    losses: tuple[Array, ...] = field(default=())
    kept: Any = None  # remembered steps, where the adopter keeps them


class Keep(Protocol):
    """Somebody who keeps states on disk, or shows progress; `stage` is a name such as "final"."""

    def last(self, stage: str) -> State | None:
        """The state to go on from."""

    def after(self, stage: str, plan: Plan, state: State, round_: Round | None) -> None:
        """Called after every round, and with round_ None when a run starts or starts anew with
        a smaller step.
        """


class Forget:
    """Keeps nothing."""

    def last(self, stage: str) -> State | None:
        return None

    def after(self, stage: str, plan: Plan, state: State, round_: Round | None) -> None:
        return None


def train(
    devices: Devices,
    plan: Plan,
    *,
    stage: str = "final",
    keep: Keep | None = None,
    start: State | None = None,
) -> State:
    """Run the plan to its last round; a step size that diverges is halved and the run starts anew.

    A step that just about does not diverge is a poor one, so one that had to be halved is halved
    twice more.

    >>> from persfl import Best, GradientStep
    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(n=30, clusters=2, rows=10, features=5, seed=0)
    >>> plan = Plan(Linear(), GradientStep, 40.0, Uniform(5), Best(), rounds=50, seed=0)
    >>> state = train(devices, plan)
    >>> state.r, state.pace.step_size < 40, len(state.pace.halved) > 0
    (50, True, True)
    """
    keep = keep or Forget()
    state = start or resumable(keep.last(stage), devices, plan.learner)
    pace = Pace(plan.step_size) if state is None else state.pace
    while True:
        try:
            done = _run(devices, plan, stage, keep, state, pace, resumed=start is None)
            if not pace.halved or pace.safe:
                return done
            pace = replace(
                pace,
                step_size=pace.step_size / 4,
                halved=(*pace.halved, pace.step_size, pace.step_size / 2),
                safe=True,
            )
        except Diverged as trouble:
            if len(pace.halved) > HALVINGS or not has_gradients(plan.learner):
                raise
            pace = replace(
                pace,
                step_size=pace.step_size / 2,
                halved=(*pace.halved, pace.step_size),
            )
            if isinstance(trouble, _Grew) and len(pace.halved) >= GIVE_UP:
                pace = Pace(plan.step_size, unlike=True)
        # online, the models before this call are good; otherwise begin anew
        state = start


def resumable(state: State | None, devices: Devices, learner: Learner) -> State | None:
    """A state that was kept, if it is of these devices and this learner."""
    if state is None:
        return None
    n, models = len(devices), state.models
    measured = all(np.shape(loss) == (n,) for loss in state.losses)
    if len(models) != n or state.trust.n != n or not measured:
        raise InputError(
            f"the run that was kept is not of these {n} devices: use another folder."
        )
    for model in models:
        mix = model if isinstance(model, list) else [(1.0, model)]
        for _, part in mix:
            learner.check(part, devices.features)
    return state


def _run(
    devices: Devices,
    plan: Plan,
    stage: str,
    keep: Keep,
    state: State | None,
    pace: Pace,
    *,
    resumed: bool,
) -> State:
    fleet = ArrayFleet(
        devices,
        learner=plan.learner,
        proposer=plan.proposer(pace.step_size),
        start=None if state is None else state.models,
        seed=plan.seed,
        n_jobs=plan.n_jobs,
        compute=plan.compute,
    )
    trust = Trust.blank(fleet) if state is None else state.trust
    if state is not None and finished(trust):
        return state
    kept = None if state is None else state.kept
    if kept is not None:
        fleet.kept = kept
    state = State(
        0 if state is None else state.r,
        fleet.models,
        trust,
        pace,
        () if state is None else state.losses,
        kept,
    )
    if not state.losses:
        keep.after(stage, plan, state, None)
    searching = keeps_steps(plan.adopter)
    losses = list(state.losses)
    # online, the rows of this call set the level
    begin = losses[0] if losses and resumed else None
    for round_ in personalize(
        fleet,
        sampler=plan.sampler,
        adopter=plan.adopter,
        rounds=plan.rounds,
        seed=plan.seed,
        trust=trust,
        first=state.r,
    ):
        own = round_.loss.copy()
        begin = own if begin is None else begin
        # Refitted models start at their own fit, whose loss may be 0; only descent can run away. A
        # search for kin that leads far
        # away is ended by the rule itself.
        if (
            has_gradients(plan.learner)
            and not pace.unlike
            and not searching
            and _too_long(own, begin)
        ):
            raise _Grew(
                f"round {round_.r}: losses grow instead of falling;"
                f" {plan.proposer(pace.step_size).advice()}.",
                round=round_.r,
                device=None,
            )
        losses.append(own)
        state = State(
            round_.r + 1, fleet.models, round_.trust, pace, tuple(losses), fleet.kept
        )
        ended = finished(round_.trust)
        keep.after(
            stage, replace(plan, rounds=state.r) if ended else plan, state, round_
        )
        if ended:
            break
    return state


class _Grew(Diverged):
    """Losses grew, though nothing overflowed."""


def _too_long(own: Array, begin: Array) -> bool:
    """Whether steps are too long, by what they made of the losses so far."""
    grown = np.median(own - begin) > (GROWTH - 1) * np.median(np.abs(begin)) + 1e-9
    return bool(grown or runaways(own, begin).mean() > FEW)


def runaways(own: Array, begin: Array) -> Any:
    """(targets,) whose loss has grown many times over, beyond what is usual in the fleet."""
    return (
        own - begin
        > (RUNAWAY - 1) * np.maximum(np.abs(begin), np.median(np.abs(begin))) + 1e-9
    )


def peers_asked(peers: Any, n: int) -> int:
    """How many peers a device asks each round: "auto" is 20, or everybody else where there are
    fewer.
    """
    return min(PEERS, n - 1) if peers == "auto" else int(peers)


def peers_of(peers: Any, n: int) -> Sampler:
    """Whom to ask."""
    if n == 1:
        return Nobody()
    if peers == "auto":
        return Uniform(peers_asked(peers, n))
    return Uniform(whole("peers", peers, least=1, most=n - 1, why=f"{n} devices"))


def step_of(step_size: Any, learner: Learner, features: int) -> float:
    """The step size to begin with.

    >>> step_of("auto", Linear(), features=20)
    0.05
    """
    if step_size == "auto":
        if isinstance(learner, Linear):
            most, shared = STEP_SIZES[learner.kind]
            return min(most, shared / features)
        traits = traits_of(learner)
        return NETWORK_STEPS.get(traits.loss, 0.05) if traits.gradients else 1.0
    return real("step_size", step_size, above=0)
