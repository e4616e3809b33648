"""Offers for other losses: gradient steps.

Starting points are the device's own level, one model for the other devices (their steps averaged),
and what the likest of them answer: the average over the nearest ("alike"), by the angle between
their gradients and the device's at three models, and from there `Neighbours`. From each, the device
takes steps on its own rows. Classes that it has never seen are a question of their own: they may be
rare here, or have had no chance to be seen yet. So steps are taken in both ways, with unseen
classes pushed down and with unseen classes left out; evidence decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from persfl.devices import Devices
from persfl.learners.linear import Linear
from persfl.methods.blend.budget import SHORTER, asked_of
from persfl.methods.blend.chunks import spans
from persfl.methods.blend.fixed_point import mean_of, settled
from persfl.methods.blend.likeness import likeness_of, likest, seen_classes
from persfl.methods.blend.neighbours import Neighbours
from persfl.methods.blend.search import Asked, neighbours, unpaid
from persfl.methods.blend.site import Part, Starts
from persfl.proposers import GradientStep
from persfl.training import STEP_SIZES
from persfl.types import Array, Data, IntArray

STARTS = ("own", "pooled", "alike", "neighbours")
STEPS = (0, 3, 10, 30, 100, 300)
LEVEL = 100  # steps toward a device's own level
# the longest step, for up to 64 features of spread 1; own steps are shorter
STEP, OWN = 0.5, 0.6
# and the weight of squared slopes against the sum of the losses
POOL_ROUNDS, SHRINK = 30, 0.5
NEAR_ROUNDS, EACH = 20, 10
SEARCH_ROUNDS, SHORT = 8, 5
QUESTIONS = SHORTER


def step_for(learner: Linear, features: int) -> float:
    """Shorter where there are many features, or where the loss is steep."""
    return min(STEP * min(1.0, 64.0 / max(features, 1)), bold_step(learner, features))


def bold_step(learner: Linear, features: int) -> float:
    """As long as averaged steps may be: one that is too long is noticed, and shortened (see
    `settled`).
    """
    return STEP_SIZES[learner.kind][0] * min(1.0, 64.0 / max(features, 1))


def names(learner: Linear) -> list[str]:
    """What offers are called."""
    found = []
    for name in STARTS:
        for unseen in _ways(learner, name):
            for steps in STEPS:
                if steps > 0 or (
                    unseen != "out" and (name != "own" or learner.intercept)
                ):
                    found.append(_named(name, unseen, steps))
    return found


def _named(start: str, unseen: str, steps: int) -> str:
    return f"{start}{'-seen' if unseen == 'out' else ''} {steps}"


def starts(part: Part) -> tuple[dict[str, Array], Asked]:
    """What offers are made from, asked of the peers."""
    learner = part.learner
    pace = step_for(learner, part.features)
    who, left = asked_of(part, POOL_ROUNDS + 3)
    pooled = np.zeros(learner.size(part.features))
    alike = np.tile(pooled, (part.targets * part.copies, 1))
    rounds = spent = 0
    if len(who):
        pooled = pooled_model(part, who, bold_step(learner, part.features))
        near = nearest(part, who, pooled, pace)
        rounds = min(NEAR_ROUNDS, int(left) // (2 * near.shape[1]))
        spent = rounds * near.shape[1]
        alike = averaged(part, near, GradientStep(pace, steps=EACH), rounds)
        sound = np.isfinite(alike).all(axis=1, keepdims=True) & (rounds > 0)
        alike = np.where(sound, alike, pooled)
    many = min((int(left) - spent) // (SEARCH_ROUNDS + 1), part.peers // 2 or 1)
    rule = Neighbours(many, part.peers, part.own_rows(), None)
    search = GradientStep(pace, steps=SHORT)
    asked = neighbours(part, search, rule, alike, SEARCH_ROUNDS if many else 1)
    missing = {"pooled": not len(who), "alike": not rounds, "neighbours": not many}
    starts = {"pooled": pooled, "alike": alike, "neighbours": asked.models}
    return starts, asked._replace(missing=unpaid(missing))


def shapes(learner: Linear, features: int, copies: int) -> dict[str, tuple[int, ...]]:
    """What `starts` holds, for whoever gets it from elsewhere."""
    size = learner.size(features)
    return {"pooled": (size,), "alike": (copies, size), "neighbours": (copies, size)}


def offers(learner: Linear, own: Devices, told: Starts) -> dict[str, Array]:
    """(copies, size) per starting point and number of own steps."""
    pace, size = step_for(learner, own.features), learner.size(own.features)
    found: dict[str, Array] = {}
    start = {name: np.broadcast_to(told[name], (len(own), size)) for name in STARTS[1:]}
    start["own"] = level(learner, own, OWN * pace)
    for unseen in ("free", "down", "out"):
        which = [name for name in STARTS if unseen in _ways(learner, name)]
        for steps, models in (
            tuned(
                learner,
                own,
                np.stack([start[name] for name in which]),
                OWN * pace,
                unseen,
            )
            if which
            else ()
        ):
            found |= {
                _named(name, unseen, steps): each
                for name, each in zip(which, models, strict=True)
            }
    return {name: found[name] for name in names(learner)}


def _ways(learner: Linear, name: str) -> tuple[str, ...]:
    return ("down", "out") if _classes(learner) and name != "own" else ("free",)


def pooled_model(part: Part, who: IntArray, step: float) -> Array:
    """One model for these peers, shrunk a little: where their averaged steps no longer move it."""
    learner, weight = part.learner, part.weight[who]
    slopes = np.ones(learner.size(part.features))
    if learner.intercept:
        slopes.reshape(learner.classes, -1)[:, -1] = 0.0
    proposer = GradientStep(step)
    shrink = 2.0 * step * SHRINK / weight.sum()

    def answer(model: Array) -> Array:
        said = part.answers(proposer, who, np.tile(model, (len(who), 1)))
        return np.asarray(mean_of(said, model, weight) - shrink * slopes * model)

    return settled(answer, np.zeros(len(slopes)), POOL_ROUNDS)


def nearest(part: Part, who: IntArray, pooled: Array, pace: float) -> IntArray:
    """(copies, peers) whose steps point most like one's own: at zero, where one class is
    favoured, and at the pooled model.
    """
    learner, size = part.learner, len(pooled)
    favour = np.zeros(size)
    if learner.intercept:
        favour.reshape(learner.classes, -1)[0, -1] = 5.0
    models, proposer = np.stack([np.zeros(size), favour, pooled]), GradientStep(pace)
    asked = np.repeat(models, len(who), axis=0)
    all_theirs = (part.answers(proposer, np.tile(who, 3), asked) - asked).reshape(
        3, len(who), size
    )
    all_mine = part.own_answers(proposer, models) - models[:, None]
    heard = np.isfinite(all_theirs).all(axis=(0, 2))
    likeness = np.where(heard, 0.0, -np.inf) + np.zeros((all_mine.shape[1], 1))
    for k in range(3):
        theirs, mine = all_theirs[k], all_mine[k]
        if k == 1 and learner.classes > 1:
            theirs, mine = (
                moves.reshape(len(moves), learner.classes, -1)[:, 0]
                for moves in (theirs, mine)
            )
        if not heard.any():
            break
        centre, scale = (
            theirs[heard].mean(axis=0),
            theirs[heard].std(axis=0) + 1e-6 * pace,
        )
        theirs, mine = (
            (np.nan_to_num(moves) - centre) / scale for moves in (theirs, mine)
        )
        likeness += likeness_of(mine, theirs)
    return likest(who, likeness)


def averaged(part: Part, near: IntArray, proposer: GradientStep, rounds: int) -> Array:
    """(copies, size) from zero, round by round the mean of the steps of the nearest."""
    many, size = near.shape[1], part.learner.size(part.features)
    models, whose = np.zeros((len(near), size)), np.repeat(np.arange(len(near)), many)
    for _ in range(rounds):
        said = part.answers(proposer, near.ravel(), models[whose], whose).reshape(
            len(near), many, size
        )
        good = np.isfinite(said).all(axis=2, keepdims=True)
        total = np.where(good, said, 0.0).sum(axis=1) / np.maximum(good.sum(axis=1), 1)
        models = np.where(good.sum(axis=1) > 0, total, models)
    return models


def level(learner: Linear, own: Devices, step: float) -> Array:
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
        for _ in range(LEVEL):
            models[lo:hi] -= moves.ravel() * learner.grad(models[lo:hi], data)
    return models


def tuned(
    learner: Linear, own: Devices, start: Array, step: float, unseen: str
) -> Iterator[tuple[int, Array]]:
    """(..., copies, size) models after so many own steps. Weights of classes that the rows do not
    have stay, and these classes are pushed "down" by the others, or left "out" of the
    comparison; "free" steps move everything.
    """
    marks = {steps: np.empty(start.shape) for steps in STEPS}
    for lo, hi in spans(learner, own, wide=math.prod(start.shape[:-2])):
        data, model, done = (
            own.gather(np.arange(lo, hi)),
            np.array(start[..., lo:hi, :]),
            0,
        )
        seen = None if unseen == "free" else seen_classes(data, learner.classes)
        for steps in STEPS:
            for _ in range(steps - done):
                model = model - step * _own_slope(
                    learner, model, data, seen, unseen == "out"
                )
            marks[steps][..., lo:hi, :], done = model, steps
    yield from marks.items()


def _own_slope(
    learner: Linear, model: Array, data: Data, seen: Any, out: bool
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


def _classes(learner: Linear) -> bool:
    return bool(getattr(learner, "classes", 1) > 1 and learner.intercept)
