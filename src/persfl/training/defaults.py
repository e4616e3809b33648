"""What "auto" stands for in a run of the loop: step sizes, rounds, peers."""

from __future__ import annotations

from persfl.checks import real, whole
from persfl.learners.linear import Linear
from persfl.samplers import Nobody, Uniform
from persfl.traits import has_gradients, traits_of
from persfl.types import Learner, Sampler

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
