"""What generators with shared models have in common: who takes part, averaging, holding models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from persfl.checks import real, whole
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.fleets.refusals import cannot_share, diverged
from persfl.learners.linear import Linear
from persfl.proposers.gradient import GradientStep
from persfl.seeds import Stream, distinct, stream
from persfl.traits import has_gradients, has_statistics
from persfl.trust import Trust
from persfl.types import Array, Choice, IntArray, Model, Round

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet


def all_devices(fleet: InProcessFleet) -> Devices:
    """The rows of the whole fleet, whose models must be vectors."""
    if isinstance(fleet.learner, (list, tuple)) or not has_gradients(fleet.learner):
        raise cannot_share(fleet.learner)
    return fleet_rows(fleet)


def fleet_rows(fleet: InProcessFleet) -> Devices:
    """The rows of the whole fleet."""
    if fleet.home.source is not None:
        raise InputError("methods with shared models need static data. Got a stream.")
    return fleet.home.static


def step_length(fleet: InProcessFleet, name: str) -> float:
    """How long the fleet's one gradient step a round is."""
    step = fleet.proposer
    if not isinstance(step, GradientStep) or step.steps != 1:
        raise InputError(
            f"{name} takes one gradient step a round: proposer=GradientStep(step_size). Got"
            f" {step!r}. Give it more rounds."
        )
    return step.step_size


def slopes(
    fleet: InProcessFleet, models: Array, who: IntArray | None, place: Stream
) -> Array:
    """(D, size) gradients of devices' losses at these models, as a step of each tells them."""
    stepped = fleet.stepped(models, who, place)
    return (models - stepped) / step_length(fleet, "a gradient")


def start_of(fleet: InProcessFleet, seed: int) -> Model:
    """The model that everybody begins with."""
    return fleet.learner.init(all_devices(fleet)[0], stream(seed, "shared"))


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


def mean_of_steps(
    fleet: InProcessFleet, model: Model, who: IntArray, place: Stream
) -> Model:
    """The mean of these devices' steps from one model, weighted by their rows: what a round of
    FedAvg makes of it.
    """
    answers = fleet.stepped(
        np.repeat(model[None], len(who), axis=0), who, place.at(who)
    )
    return mean_by_rows(fleet, answers, who)


def mean_by_rows(fleet: InProcessFleet, models: Array, who: IntArray) -> Model:
    """The mean of one model of each of these devices, weighted by their rows; evenly where none of
    them counts, such as a cluster over a federation in which nobody took a step.
    """
    weight = fleet.home.static.total[who]
    if not weight.any():
        weight = np.ones(len(who))
    return fleet.learner.mix(models, weight / weight.sum())


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
    nobody = np.empty((T, 0), dtype=np.int64)
    nothing = np.empty((T, 0))
    losses = fleet.probe(nobody, r).losses
    return Round(r, nobody, losses, nothing, Choice(nobody, nothing, np.ones(T)), trust)


def own_columns(learner: Linear, features: int, *, slopes: bool) -> IntArray:
    """Which coefficients a device has of its own: levels, or all."""
    places = np.arange(learner.size(features)).reshape(learner.classes, -1)
    if slopes:
        return places.ravel()
    return places[:, features:].ravel()  # none where there is no intercept
