"""What a run is made of, where it stands, and who keeps it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from persfl.devices import Devices
from persfl.errors import InputError
from persfl.trust import Trust
from persfl.types import Adopter, Array, Learner, Round, Sampler


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


def resumable(state: State | None, devices: Devices, learner: Learner) -> State | None:
    """A state that was kept, if it is of these devices and this learner."""
    return checked_state(state, learner, len(devices), devices.features)


def checked_state(
    state: State | None, learner: Learner, n: int, features: int
) -> State | None:
    """A state that was kept, if it is of so many devices and of models for so many columns."""
    if state is None:
        return None
    measured = all(np.shape(loss) == (n,) for loss in state.losses)
    # every device once: what is said of others could be written, and not be read again
    about = np.array_equal(np.sort(state.trust.targets, axis=None), np.arange(n))
    known = about and measured
    if len(state.models) != n or state.trust.n != n or not known:
        raise InputError(
            f"the run that was kept is not of these {n} devices: use another folder."
        )
    for model in state.models:
        mix = model if isinstance(model, list) else [(1.0, model)]
        for _, part in mix:
            learner.check(part, features)
    return state
