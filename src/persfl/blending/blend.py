"""Blend: a device's model as a mix of what its own rows, the whole fleet and its neighbours offer.

Devices are dealt into at most eight groups. What a device is offered comes from devices of the other groups, so its own folds can
judge it honestly. Every candidate is a linear model; so is their mix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from persfl.blending import squared, steps
from persfl.blending.evidence import shares
from persfl.blending.folds import copies, fold_numbers, judged
from persfl.blending.heard import Heard
from persfl.blending.part import Part
from persfl.blending.views import VIEWS, Usual, View
from persfl.devices import Devices, offsets
from persfl.errors import InputError
from persfl.learners import Linear
from persfl.predicting import respond_each
from persfl.seeds import stream
from persfl.trust import Trust
from persfl.types import Array, IntArray, Round

GROUPS, FOLDS, CLASS_FOLDS, BLOCKS = 8, 5, 3, 2
SHORTER = 4  # short questions (a few steps) that cost as much as one refit
SORTS = ("own", "fleet", "neighbours")
_SORT = {"own": "own", "pooled": "fleet", "mean": "fleet", "alike": "neighbours", "neighbours": "neighbours"}


@dataclass(frozen=True, eq=False)
class Blended:
    """`models` (devices, size) in the rows' units; `shares` (devices, candidates) of what `names` say; `rounds` of asking."""

    models: Array
    names: tuple[str, ...]
    shares: Array
    rounds: tuple[Round, ...]

    @property
    def trust(self) -> Trust:
        """What is known of all pairs, and in its notes of what the models are made."""
        return self.rounds[-1].trust


def blend(rows: Devices, learner: Any, *, seed: int = 0, budget: int = 640, ordered: bool = False, classes: int = 0) -> Blended:
    """A model for every device; `budget` is how many refits, or four times as many short steps, each device asks for.

    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(n=40, clusters=2, rows=12, features=5, noise=0.5, seed=0)
    >>> found = blend(devices, Linear(intercept=True))
    >>> own = blend(devices, Linear(intercept=True), budget=1)
    >>> away = lambda models: float(((models[:, :5] - devices.true_weights) ** 2).sum(axis=1).mean())
    >>> away(found.models) < away(own.models), bool(found.shares.sum(axis=1).round(6).max() == 1)
    (True, True)
    """
    if not isinstance(learner, Linear):
        raise InputError(f"blend mixes linear models into one. Got {learner!r}: use method='paper' or 'kin'.")
    n, labels = len(rows), learner.kind == "squared"
    count = BLOCKS if ordered else CLASS_FOLDS if classes else FOLDS
    fold = fold_numbers(rows, count, classes=0 if ordered else classes, seed=seed)
    route = squared.candidates if labels else steps.candidates
    views = VIEWS if learner.intercept else VIEWS[:1]
    asks = max(1, budget * (1 if labels else SHORTER) // (len(views) * (count + 1)))
    group = _groups(n, seed)
    usable = judged(rows, fold, count)
    heard = Heard(n, labels)
    final: dict[str, Array] = {}
    missed: dict[str, Array] = {}
    for h in range(group.max() + 1):
        mine, rest = np.flatnonzero(group == h), np.flatnonzero(group != h)
        others, own = _some(rows, rest), copies(rows, fold, mine, count)
        usual = Usual.of(others, labels)
        held, here = _some(rows, mine), np.isin(rows.owner, mine)
        at = held.owner * (count + 1) + 1 + fold[here]
        for name in views:
            theirs, ours = View.of(name, others, usual, labels), View.of(name, own, usual, labels)
            part = Part(learner, theirs.inside(others), ours.inside(own), stream(seed, "blend", name, h).integer(), asks)
            found, asked = route(part)
            heard.add(name, asked.rounds, mine, rest, count + 1, ours.label_scale)
            for (kind, how), models in found.items():
                outside = ours.outside(models, learner)
                key = f"{name} {kind} {how:g}"
                final.setdefault(key, np.empty((n, outside.shape[1])))[mine] = outside[:: count + 1]
                each = usable[here] * _missed(learner, outside, held, at, classes)
                missed.setdefault(key, np.empty(n))[mine] = np.bincount(held.owner, weights=each, minlength=len(mine))
    weight = np.bincount(rows.owner, weights=usable, minlength=n).astype(np.float64)
    losses = np.stack(list(missed.values()), axis=1) / np.maximum(weight, 1e-12)[:, None]
    mix = shares(losses, weight, relative=not classes)
    models = np.zeros((n, learner.size(rows.features)))
    for column, one in enumerate(final.values()):
        models += np.where(mix[:, column, None] > 0, mix[:, column, None] * one, 0.0)
    names = tuple(final)
    return Blended(models, names, mix, heard.rounds(mix, names))


def sorts(names: Any, mix: Array) -> Array:
    """(devices, 3) the shares of models that started from own rows, from the fleet and from neighbours."""
    sort = np.array([SORTS.index(_SORT[str(name).split()[1].removesuffix("-seen")]) for name in names])
    return np.stack([mix[:, sort == k].sum(axis=1) for k in range(len(SORTS))], axis=1)


def _groups(n: int, seed: int) -> IntArray:
    """Which group each device is in; all groups are equally large, or nearly."""
    order = np.argsort(stream(seed, "groups").at(np.arange(n)).uniform(1)[:, 0], kind="stable")
    found = np.empty(n, dtype=np.int64)
    found[order] = np.arange(n) % min(GROUPS, n)
    return found


def _some(rows: Devices, which: IntArray) -> Devices:
    at = np.isin(rows.owner, which)
    return Devices(rows.X[at], rows.y[at], rows.weight[at], offsets(rows.counts[which]), range(len(which)))


def _missed(learner: Any, models: Array, held: Devices, at: IntArray, classes: int) -> Array:
    """(rows,) loss of each row by the model that has not seen its fold: squared error, or Brier score."""
    if classes:
        response = respond_each(learner, models, held.X, at, classes)
        return np.asarray(((response - (held.y[:, None] == np.arange(classes))) ** 2).sum(axis=1))
    with np.errstate(all="ignore"):
        return np.asarray((respond_each(learner, models, held.X, at) - held.y) ** 2)
