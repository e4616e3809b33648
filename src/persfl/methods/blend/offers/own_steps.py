"""Own steps from each start: what a device makes of what it is offered.

Classes that it has never seen are a question of their own: they may be rare here, or have had no
chance to be seen yet. So steps are taken in both ways, with unseen classes pushed down and with
unseen classes left out; evidence decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from persfl.devices import Devices
from persfl.learners.linear import Linear
from persfl.methods.blend.blend_settings import StepSettings
from persfl.methods.blend.chunks import spans
from persfl.methods.blend.moves_alike import seen_classes
from persfl.methods.blend.site import Starts
from persfl.training.state import STEP_SIZES
from persfl.types import Array, Data

STARTS = ("own", "pooled", "alike", "neighbours")


def step_for(learner: Linear, features: int, chosen: StepSettings) -> float:
    """Shorter where there are many features, or where the loss is steep."""
    short = chosen.longest * min(1.0, 64.0 / max(features, 1))
    return min(short, bold_step(learner, features))


def bold_step(learner: Linear, features: int) -> float:
    """As long as averaged steps may be: one that is too long is noticed, and shortened (see
    `settled`).
    """
    return STEP_SIZES[learner.kind][0] * min(1.0, 64.0 / max(features, 1))


def step_names(learner: Linear, chosen: StepSettings) -> list[str]:
    """What offers are called."""
    found = []
    for name in STARTS:
        for unseen in _ways(learner, name):
            for steps in chosen.own_steps:
                level = name != "own" or learner.intercept
                if steps > 0 or (unseen != "out" and level):
                    found.append(_named(name, unseen, steps))
    return found


def _named(start: str, unseen: str, steps: int) -> str:
    return f"{start}{'-seen' if unseen == 'out' else ''} {steps}"


def step_offers(
    learner: Linear, own: Devices, told: Starts, chosen: StepSettings
) -> dict[str, Array]:
    """(copies, size) per starting point and number of own steps."""
    size = learner.size(own.features)
    pace = chosen.slower * step_for(learner, own.features, chosen)
    found: dict[str, Array] = {}
    start = {name: np.broadcast_to(told[name], (len(own), size)) for name in STARTS[1:]}
    start["own"] = level(learner, own, pace, chosen.level_steps)
    for unseen in ("free", "down", "out"):
        which = [name for name in STARTS if unseen in _ways(learner, name)]
        if not which:
            continue
        begin = np.stack([start[name] for name in which])
        for steps, models in tuned(learner, own, begin, pace, unseen, chosen.own_steps):
            for name, each in zip(which, models, strict=True):
                found[_named(name, unseen, steps)] = each
    return {name: found[name] for name in step_names(learner, chosen)}


def _ways(learner: Linear, name: str) -> tuple[str, ...]:
    classes = learner.classes > 1 and learner.intercept
    return ("down", "out") if classes and name != "own" else ("free",)


def level(learner: Linear, own: Devices, step: float, steps: int) -> Array:
    """(copies, size) what a device knows without its features: own steps from zero, of the
    intercept alone.
    """
    models = np.zeros((len(own), learner.size(own.features)))
    if not learner.intercept:
        return models
    moves = np.zeros((learner.classes, own.features + 1))
    moves[:, -1] = step
    for lo, hi in spans(learner, own):
        data = own.gather(np.arange(lo, hi))
        for _ in range(steps):
            models[lo:hi] -= moves.ravel() * learner.grad(models[lo:hi], data)
    return models


def tuned(
    learner: Linear,
    own: Devices,
    start: Array,
    step: float,
    unseen: str,
    after: Sequence[int],
) -> Iterator[tuple[int, Array]]:
    """(..., copies, size) models after so many own steps. Weights of classes that the rows do not
    have stay, and these classes are pushed "down" by the others, or left "out" of the
    comparison; "free" steps move everything.
    """
    marks = {steps: np.empty(start.shape) for steps in after}
    for lo, hi in spans(learner, own, wide=math.prod(start.shape[:-2])):
        data = own.gather(np.arange(lo, hi))
        model = np.array(start[..., lo:hi, :])
        done = 0
        seen = None if unseen == "free" else seen_classes(data, learner.classes)
        for steps in after:
            for _ in range(steps - done):
                model = model - step * _own_slope(
                    learner, model, data, seen, unseen == "out"
                )
            marks[steps][..., lo:hi, :], done = model, steps
    yield from marks.items()


def _own_slope(
    learner: Linear, model: Array, data: Data, seen: Array | None, out: bool
) -> Array:
    with np.errstate(all="ignore"):  # what overflows is not chosen
        if seen is None:
            return np.asarray(learner.grad(model, data))
        if out:  # far below the others, a class takes nothing from them
            low = (
                model.reshape(*model.shape[:-1], learner.classes, -1) * seen[..., None]
            )
            low[..., -1] = np.where(seen, low[..., -1], -1e3)
            model = low.reshape(model.shape)
        return np.asarray(
            np.where(
                np.repeat(seen, model.shape[-1] // learner.classes, axis=-1),
                learner.grad(model, data),
                0.0,
            )
        )
