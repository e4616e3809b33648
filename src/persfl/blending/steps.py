"""Candidates for other losses: gradient steps.

Starting points are nothing, one model for the other devices (their steps averaged), and what the likest of them answer: first the
average over the nearest, by the angle between their gradients and the device's at three models, then `Neighbours`. From each, the device
takes steps on its own rows. Classes that it has never seen are a question of their own: they may be rare here, or have had no chance to
be seen yet. So steps are taken in both ways, with unseen classes pushed down and with unseen classes left out; evidence decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from persfl.blending.memory import Neighbours
from persfl.blending.part import Asked, Part
from persfl.devices import Devices
from persfl.learners.shrunk import pulled
from persfl.proposers import GradientStep
from persfl.seeds import distinct, stream
from persfl.trust import Trust
from persfl.types import Array, Choice, Data, IntArray

STEPS = (0, 3, 10, 30, 100, 300)
OWN_STEP, THEIR_STEP = 0.3, 0.5  # in units of features of spread 1, for up to 64 of them
AVERAGED, SHRINK = 400, 0.5  # devices at most, and the weight of squared slopes against the sum of their losses
NEAREST, NEAR_ROUNDS, EACH = 10, 8, 10
SEARCH_ROUNDS, SHORT = 8, 5
SHARP = 4.0  # one clear likeness out of three is enough
_CHUNK = 16 * 2**20


def step_for(features: int, most: float) -> float:
    """Shorter where there are many features."""
    return most * min(1.0, 64.0 / max(features, 1))


def candidates(part: Part) -> tuple[dict[tuple[str, float], Array], Asked]:
    """(copies, size) per starting point and number of own steps."""
    learner, own, others = part.learner, part.own, part.others
    pace = step_for(own.features, THEIR_STEP)
    pooled = pooled_model(learner, others, part.seed)
    near = nearest(learner, others, own, pooled)
    rule = Fixed(near)
    alike = part.neighbours(GradientStep(pace, steps=EACH), rule, np.zeros((len(own), len(pooled))), NEAR_ROUNDS)
    many = max(1, min((part.asks - NEAR_ROUNDS * near.shape[1]) // (SEARCH_ROUNDS + 1), len(others) // 2 or 1))
    search = Neighbours(many, len(others), own.total, None)
    asked = part.neighbours(GradientStep(pace, steps=SHORT), search, alike.models, SEARCH_ROUNDS)
    size = len(pooled)
    starts = {"own": np.zeros((len(own), size)), "pooled": np.broadcast_to(pooled, (len(own), size)), "neighbours": asked.models}
    found: dict[tuple[str, float], Array] = {}
    for name, start in starts.items():
        for shy in (False, True) if _classes(learner) else (False,):
            if name == "own" and shy:
                continue
            for steps, models in tuned(learner, own, start, step_for(own.features, OWN_STEP), shy=shy):
                if steps > 0 or not (shy or name == "own"):
                    found[name + ("-seen" if shy else ""), float(steps)] = models
    return found, asked


def pooled_model(learner: Any, rows: Devices, seed: int) -> Array:
    """One model for these devices, shrunk a little: their gradients averaged, step by step with momentum."""
    n = len(rows)
    who = distinct(stream(seed, "together"), np.zeros(1, dtype=np.int64), np.array([n]), min(n, AVERAGED))[0]
    at = np.isin(rows.owner, who)
    data = Data(rows.X[at][None], rows.y[at][None], rows.weight[at][None])
    return np.asarray(pulled(learner, data, np.zeros(learner.size(rows.features)), np.array([SHRINK]))[0])


def nearest(learner: Any, others: Devices, own: Devices, pooled: Array) -> IntArray:
    """(copies, peers) whose gradients point most like one's own: at zero, where one class is favoured, and at the pooled model."""
    favour = np.zeros_like(pooled)
    if learner.intercept:
        favour.reshape(learner.classes, -1)[0, -1] = 5.0
    likeness = np.zeros((len(own), len(others)))
    for model in (np.zeros_like(pooled), favour, pooled):
        theirs, mine = (_slopes(learner, rows, model) for rows in (others, own))
        if model is favour and learner.classes > 1:
            theirs, mine = (part.reshape(len(part), learner.classes, -1)[:, 0] for part in (theirs, mine))
        centre, scale = theirs.mean(axis=0), theirs.std(axis=0) + 1e-6
        theirs, mine = ((part - centre) / scale for part in (theirs, mine))
        theirs, mine = (part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-12) for part in (theirs, mine))
        likeness += np.exp(SHARP * mine @ theirs.T)
    count = min(len(others), max(5, min(NEAREST, len(others) // 4)))
    return np.argsort(-likeness, axis=1, kind="stable")[:, :count]


@dataclass(frozen=True, eq=False)
class Fixed:
    """Always the same peers, and the mean of what they answer."""

    who: IntArray

    @property
    def sampler(self) -> Any:
        return lambda trust, r, seed: np.ascontiguousarray(self.who)

    def __call__(self, trust: Trust, peers: IntArray, losses: Array) -> Choice:
        usable = (peers >= 0) & np.isfinite(losses[:, 1:])
        many = usable.sum(axis=1, keepdims=True)
        return Choice(np.where(usable, peers, -1), usable / np.maximum(many, 1), (many[:, 0] == 0) + 0.0)


def tuned(learner: Any, own: Devices, start: Array, step: float, *, shy: bool) -> Iterator[tuple[int, Array]]:
    """Models after so many own steps; `shy` steps leave classes out that the rows do not have."""
    marks = {steps: np.empty(start.shape) for steps in STEPS}
    for lo, hi in _parts(learner, own, np.arange(len(own))):
        data, model, done = own.gather(np.arange(lo, hi)), np.array(start[lo:hi]), 0
        seen = _seen(learner, data) if _classes(learner) else None
        for steps in STEPS:
            for _ in range(steps - done):
                model = model - step * _own_slope(learner, model, data, seen, shy)
            marks[steps][lo:hi], done = model, steps
    yield from marks.items()


def _own_slope(learner: Any, model: Array, data: Data, seen: Any, shy: bool) -> Array:
    if seen is None or not model.any():
        return np.asarray(learner.grad(model, data))
    columns = np.repeat(seen, model.shape[-1] // learner.classes, axis=-1)
    if shy:  # far below the others, a class neither takes from them nor is moved
        low = model.reshape(*model.shape[:-1], learner.classes, -1).copy()
        low[..., -1] = np.where(seen, low[..., -1], -1e3)
        low[..., :-1] = np.where(seen[..., None], low[..., :-1], 0.0)
        model = low.reshape(model.shape)
    return np.asarray(np.where(columns, learner.grad(model, data), 0.0))


def _seen(learner: Any, data: Data) -> Any:
    """(..., classes) which classes the rows have."""
    return ((data.y[..., None] == np.arange(learner.classes)) & (data.weight > 0)[..., None]).any(axis=-2)


def _classes(learner: Any) -> bool:
    return bool(getattr(learner, "classes", 1) > 1 and learner.intercept)


def _slopes(learner: Any, rows: Devices, model: Array) -> Array:
    """(devices, size) everybody's gradient at a model, as a step from it shows it."""
    parts = [learner.grad(model[None], rows.gather(np.arange(lo, hi))) for lo, hi in _parts(learner, rows, np.arange(len(rows)))]
    return np.concatenate(parts)


def _parts(learner: Any, rows: Devices, who: Any) -> list[tuple[int, int]]:
    longest = int(rows.counts[who].max(initial=1))
    each = 8 * (longest * (rows.features + 3 * learner.classes) + 4 * learner.size(rows.features))
    size = max(1, _CHUNK // each)
    return [(i, min(i + size, len(who))) for i in range(0, len(who), size)]
