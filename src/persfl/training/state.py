"""What a run is made of and what "auto" stands for in it, where it stands, and who keeps it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from persfl.checks import real, whole
from persfl.errors import InputError
from persfl.learners.fleet_mix import DeviceMix
from persfl.learners.linear import Linear
from persfl.samplers.nobody import Nobody
from persfl.samplers.uniform import Uniform
from persfl.traits import has_gradients, traits_of

if TYPE_CHECKING:
    from persfl.devices import Devices
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
        if isinstance(model, DeviceMix):
            model.check(learner, features)
            continue
        mix = model if isinstance(model, list) else [(1.0, model)]
        for _, part in mix:
            learner.check(part, features)
    return state


# What "auto" stands for

# The longest step and, with many features, steps times features: the more features, the more a step
# can overshoot. In shared units; measured on the tables and generators named in docs/settings.md. A
# step that is too long is halved, so boldness costs little.
STEP_SIZES = {
    "squared": (0.1, 1.0),
    "huber": (0.2, 2.0),
    "absolute": (0.05, 1.0),
    "logistic": (4.0, 40.0),
    "multinomial": (4.0, 40.0),
    "poisson": (0.1, 1.0),
}
NETWORK_STEPS = {"squared": 0.1, "absolute": 0.1, "cross_entropy": 0.5, "logistic": 0.5}
PEERS = 20
STEP_ROUNDS = 100
REFIT_ROUNDS = 20  # an answer to a refit is a complete model, so fewer rounds do
KIN_ROUNDS = 400  # at most: kin stops asking when it is done


def peers_asked(peers: int | str, n: int) -> int:
    """How many peers a device asks each round: "auto" is 20, or everybody else where there are
    fewer.
    """
    return min(PEERS, n - 1) if peers == "auto" else int(peers)


def peers_of(peers: int | str, n: int) -> Sampler:
    """Whom to ask."""
    if n == 1:
        return Nobody()
    if peers == "auto":
        return Uniform(peers_asked(peers, n))
    return Uniform(whole("peers", peers, least=1, most=n - 1, why=f"{n} devices"))


def rounds_for(rounds: int | str, learner: Learner, most: int = STEP_ROUNDS) -> int:
    """How many rounds: "auto" is `most`, or 20 for models that are refitted.

    >>> from persfl import Tree
    >>> (
    ...     rounds_for("auto", Tree()),
    ...     rounds_for("auto", Linear()),
    ...     rounds_for(7, Linear()),
    ... )
    (20, 100, 7)
    """
    if rounds != "auto":
        return whole("rounds", rounds, least=1)
    return most if has_gradients(learner) else REFIT_ROUNDS


def step_of(step_size: float | str, learner: Learner, features: int) -> float:
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
