"""Who is near, by the directions of steps and gradients, and what the nearest come to together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from persfl.learners.linear import Linear
from persfl.methods.blend.fixed_point import usual
from persfl.methods.blend.moves_alike import likeness_of, likest
from persfl.methods.blend.questions import GradientSteps, OwnRows, Slopes
from persfl.methods.blend.site import Group
from persfl.types import Array, IntArray


def nearest_by_steps(
    group: Group, learner: Linear, who: IntArray, pooled: Array, pace: float
) -> IntArray:
    """(copies, peers) whose steps point most like one's own: at zero, where one class is
    favoured, and at the pooled model.
    """
    size = len(pooled)
    look = group.look
    favour = np.zeros(size)
    if learner.intercept:
        favour.reshape(learner.classes, -1)[0, -1] = 5.0
    models = np.stack([np.zeros(size), favour, pooled])
    asked = np.repeat(models, len(who), axis=0)
    question = GradientSteps(look=look, models=asked, step=pace, steps=1)
    answers = group.ask(question, np.tile(who, 3))["answers"]
    all_theirs = np.stack(
        [usual(each) for each in (answers - asked).reshape(3, -1, size)]
    )
    own = group.own(OwnRows(look=look, models=models, step=pace, steps=1))["answers"]
    all_mine = own - models[:, None]
    heard = np.isfinite(all_theirs).all(axis=(0, 2))
    likeness = np.where(heard, 0.0, -np.inf) + np.zeros((all_mine.shape[1], 1))
    for k in range(3):
        theirs = all_theirs[k]
        mine = all_mine[k]
        if k == 1 and learner.classes > 1:
            theirs, mine = (
                moves.reshape(len(moves), learner.classes, -1)[:, 0]
                for moves in (theirs, mine)
            )
        if not heard.any():
            break
        centre = theirs[heard].mean(axis=0)
        scale = theirs[heard].std(axis=0) + 1e-6 * pace
        theirs, mine = (
            (np.nan_to_num(moves) - centre) / scale for moves in (theirs, mine)
        )
        likeness += likeness_of(mine, theirs)
    return likest(who, likeness)


def near_average(
    group: Group, near: IntArray, step: float, steps: int, rounds: int, size: int
) -> Array:
    """(copies, size) from zero, round by round the mean of the steps of the nearest."""
    many = near.shape[1]
    models = np.zeros((len(near), size))
    whose = np.repeat(np.arange(len(near)), many)
    for _ in range(rounds):
        question = GradientSteps(
            look=group.look, models=models[whose], step=step, steps=steps
        )
        answers = group.ask(question, near.ravel(), whose)["answers"]
        said = answers.reshape(len(near), many, size)
        # of each copy's nearest: what is usual differs from model to model
        moves = np.stack([usual(each) for each in said - models[:, None]])
        good = np.isfinite(moves).all(axis=2, keepdims=True)
        total = np.where(good, said, 0.0).sum(axis=1) / np.maximum(good.sum(axis=1), 1)
        models = np.where(good.sum(axis=1) > 0, total, models)
    return models


def nearest_by_slopes(group: Group, at: Sequence[Array], who: IntArray) -> IntArray:
    """(copies, peers) of `who`, whose gradients at these models point most like one's own.

    Each number of a gradient is measured by how much peers differ in it.
    """
    own = group.own(OwnRows(look=group.look, models=np.stack(at)))["answers"]
    likeness = np.zeros((own.shape[1], len(who)))
    for model, all_mine in zip(at, own, strict=True):
        models = np.broadcast_to(model, (len(who), len(model)))
        theirs = group.ask(Slopes(look=group.look, models=models), who)["answers"]
        theirs = usual(theirs)
        told = np.isfinite(theirs).all(axis=1)
        if not told.any():
            continue
        centre = theirs[told].mean(axis=0)
        scale = theirs[told].std(axis=0)
        scale = scale + 1e-6 * scale.max() + 1e-12
        moves = (np.nan_to_num(theirs) - centre) / scale
        likeness += likeness_of((all_mine - centre) / scale, moves)
        likeness += np.where(told, 0.0, -np.inf)
    return likest(who, likeness)
