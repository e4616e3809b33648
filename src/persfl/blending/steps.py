"""Offers for other losses: gradient steps.

Starting points are nothing, one model for the other devices (their steps averaged), and what the likest of them answer: the
average over the nearest ("alike"), by the angle between their gradients and the device's at three models, and from there
`Neighbours`. From each, the device takes steps on its own rows. Classes that it has never seen are a question of their own: they
may be rare here, or have had no chance to be seen yet. So steps are taken in both ways, with unseen classes pushed down and with
unseen classes left out; evidence decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from persfl.blending.memory import Neighbours
from persfl.blending.part import Asked, Part
from persfl.devices import Devices
from persfl.learners.shrunk import pulled
from persfl.proposers import GradientStep
from persfl.seeds import distinct, stream
from persfl.training import STEP_SIZES
from persfl.types import Array, Data, IntArray

STEPS = (0, 3, 10, 30, 100, 300)
STEP, OWN = 0.5, 0.6  # the longest step, for up to 64 features of spread 1; own steps are shorter
AVERAGED, SHRINK = 400, 0.5  # devices at most, and the weight of squared slopes against the sum of their losses
NEAREST, NEAR_ROUNDS, EACH = 10, 20, 10
SEARCH_ROUNDS, SHORT = 8, 5
SHARP = 4.0  # one clear likeness out of three is enough
_CHUNK = 4 * 2**20  # bytes of rows that many steps go over: they should stay in the cache


def step_for(learner: Any, features: int) -> float:
    """Shorter where there are many features, or where the loss is steep."""
    return min(STEP, STEP_SIZES[learner.kind][0]) * min(1.0, 64.0 / max(features, 1))


def offers(part: Part) -> tuple[dict[tuple[str, float], Array], Asked]:
    """(copies, size) per starting point and number of own steps."""
    learner, own, others = part.learner, part.own, part.others
    pace = step_for(learner, own.features)
    pooled = pooled_model(learner, others, part.seed)
    near = nearest(learner, others, own, pooled, part.seed)
    rounds = max(1, min(NEAR_ROUNDS, part.asks // (2 * near.shape[1])))
    alike = averaged(learner, others, near, GradientStep(pace, steps=EACH), rounds)
    alike = np.where(np.isfinite(alike).all(axis=1, keepdims=True), alike, pooled)
    many = max(1, min((part.asks - rounds * near.shape[1]) // (SEARCH_ROUNDS + 1), len(others) // 2 or 1))
    search = Neighbours(many, len(others), own.total, None)
    asked = part.neighbours(GradientStep(pace, steps=SHORT), search, alike, SEARCH_ROUNDS)
    size = len(pooled)
    starts = {
        "own": np.zeros((len(own), size)),
        "pooled": np.broadcast_to(pooled, (len(own), size)),
        "alike": alike,
        "neighbours": asked.models,
    }
    found: dict[tuple[str, float], Array] = {}
    for name, start in starts.items():
        for unseen in ("down", "out") if _classes(learner) and name != "own" else ("free",):
            for steps, models in tuned(learner, own, start, OWN * pace, unseen):
                if steps > 0 or (unseen != "out" and name != "own"):
                    found[name + ("-seen" if unseen == "out" else ""), float(steps)] = models
    return found, asked


def pooled_model(learner: Any, rows: Devices, seed: int) -> Array:
    """One model for these devices, shrunk a little: their gradients averaged, step by step with momentum."""
    n = len(rows)
    who = distinct(stream(seed, "together"), np.zeros(1, dtype=np.int64), np.array([n]), min(n, AVERAGED))[0]
    at = np.isin(rows.owner, who)
    data = Data(rows.X[at][None], rows.y[at][None], rows.weight[at][None])
    return np.asarray(pulled(learner, data, np.zeros(learner.size(rows.features)), np.array([SHRINK]))[0])


def nearest(learner: Any, others: Devices, own: Devices, pooled: Array, seed: int) -> IntArray:
    """(copies, peers) whose gradients point most like one's own: at zero, where one class is favoured, and at the pooled model."""
    who = np.arange(len(others))
    if len(others) > AVERAGED:
        who = np.sort(distinct(stream(seed, "alike"), np.zeros(1, dtype=np.int64), np.array([len(others)]), AVERAGED)[0])
    favour = np.zeros_like(pooled)
    if learner.intercept:
        favour.reshape(learner.classes, -1)[0, -1] = 5.0
    likeness = np.zeros((len(own), len(who)))
    for model in (np.zeros_like(pooled), favour, pooled):
        theirs, mine = _slopes(learner, others, model, who), _slopes(learner, own, model, np.arange(len(own)))
        if model is favour and learner.classes > 1:
            theirs, mine = (part.reshape(len(part), learner.classes, -1)[:, 0] for part in (theirs, mine))
        centre, scale = theirs.mean(axis=0), theirs.std(axis=0) + 1e-6
        theirs, mine = ((part - centre) / scale for part in (theirs, mine))
        theirs, mine = (part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-12) for part in (theirs, mine))
        likeness += np.exp(SHARP * mine @ theirs.T)
    count = min(len(who), max(5, min(NEAREST, len(who) // 4)))
    return np.asarray(who[np.argsort(-likeness, axis=1, kind="stable")[:, :count]])


def averaged(learner: Any, others: Devices, near: IntArray, proposer: GradientStep, rounds: int) -> Array:
    """(copies, size) from zero, round by round the mean of the steps of the nearest."""
    models = np.zeros((len(near), learner.size(others.features)))
    for lo, hi in _parts(learner, others, near.ravel(), near.shape[1]):
        data = others.gather(near[lo:hi])
        for _ in range(rounds):
            probe = proposer.ask(learner, models[lo:hi, None])
            models[lo:hi] = proposer.answer(learner, probe, data, None).mean(axis=1)
    return models


def tuned(learner: Any, own: Devices, start: Array, step: float, unseen: str) -> Iterator[tuple[int, Array]]:
    """Models after so many own steps. Weights of classes that the rows do not have stay, and these classes are pushed "down" by the
    others, or left "out" of the comparison; "free" steps move everything."""
    marks = {steps: np.empty(start.shape) for steps in STEPS}
    for lo, hi in _parts(learner, own, np.arange(len(own))):
        data, model, done = own.gather(np.arange(lo, hi)), np.array(start[lo:hi]), 0
        seen = None if unseen == "free" else _seen(learner, data)
        for steps in STEPS:
            for _ in range(steps - done):
                model = model - step * _own_slope(learner, model, data, seen, unseen == "out")
            marks[steps][lo:hi], done = model, steps
    yield from marks.items()


def _own_slope(learner: Any, model: Array, data: Data, seen: Any, out: bool) -> Array:
    with np.errstate(all="ignore"):  # what overflows is not chosen
        if seen is None:
            return np.asarray(learner.grad(model, data))
        if out:  # far below the others, a class takes nothing from them
            low = model.reshape(*model.shape[:-1], learner.classes, -1) * seen[..., None]
            low[..., -1] = np.where(seen, low[..., -1], -1e3)
            model = low.reshape(model.shape)
        return np.asarray(np.where(np.repeat(seen, model.shape[-1] // learner.classes, axis=-1), learner.grad(model, data), 0.0))


def _seen(learner: Any, data: Data) -> Any:
    """(..., classes) which classes the rows have."""
    return ((data.y[..., None] == np.arange(learner.classes)) & (data.weight > 0)[..., None]).any(axis=-2)


def _classes(learner: Any) -> bool:
    return bool(getattr(learner, "classes", 1) > 1 and learner.intercept)


def _slopes(learner: Any, rows: Devices, model: Array, who: IntArray) -> Array:
    """(devices, size) these devices' gradients at a model, as a step from it shows them."""
    return np.concatenate([learner.grad(model[None], rows.gather(who[lo:hi])) for lo, hi in _parts(learner, rows, who)])


def _parts(learner: Any, rows: Devices, who: Any, wide: int = 1) -> list[tuple[int, int]]:
    longest = int(rows.counts[who].max(initial=1))
    each = 8 * (longest * (rows.features + 3 * learner.classes) + 4 * learner.size(rows.features))
    size, many = max(1, _CHUNK // (each * wide)), len(who) // wide
    return [(i, min(i + size, many)) for i in range(0, many, size)]
