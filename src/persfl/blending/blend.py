"""Blend: a device's model as a mix of what its own rows, the whole fleet and its neighbours offer.

Devices are dealt into at most eight groups. What a device is offered comes from devices of the other groups, so its own folds can
judge it honestly. Every offer is a linear model; so is their mix.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from persfl.blending import squared, steps
from persfl.blending.evidence import shares
from persfl.blending.folds import copies, fold_numbers, judged
from persfl.blending.heard import Heard
from persfl.blending.offered import BLOCKS, CLASS_FOLDS, FOLDS, Blended, dealt, of_devices
from persfl.blending.part import Part
from persfl.blending.views import VIEWS, Usual, View
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.learners import Linear
from persfl.predicting import respond_each
from persfl.seeds import stream
from persfl.types import Array, IntArray

SHORTER = 4  # short questions (a few steps) that cost as much as one refit


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
        raise InputError(
            f"blend mixes linear models, and models that are refitted, such as trees. Got {learner!r}: use method='paper' or 'kin'."
        )
    n, labels = len(rows), learner.kind == "squared"
    count = BLOCKS if ordered else CLASS_FOLDS if classes else FOLDS
    fold = fold_numbers(rows, count, classes=classes, ordered=ordered, seed=seed)
    route = squared.offers if labels else steps.offers
    views = VIEWS if learner.intercept else VIEWS[:1]
    asks = max(1, budget * (1 if labels else SHORTER) // (len(views) * (count + 1)))
    group = dealt(n, seed)
    usable = judged(rows, fold, count)
    heard = Heard(n, labels)
    final: dict[str, Array] = {}
    missed: dict[str, Array] = {}
    for h in range(group.max() + 1):
        mine, rest = np.flatnonzero(group == h), np.flatnonzero(group != h)
        others, own = of_devices(rows, rest), copies(rows, fold, mine, count)
        usual = Usual.of(others, labels)
        held, here = of_devices(rows, mine), np.isin(rows.owner, mine)
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


def _missed(learner: Any, models: Array, held: Devices, at: IntArray, classes: int) -> Array:
    """(rows,) loss of each row by the model that has not seen its fold: squared error, or Brier score."""
    if classes:
        response = respond_each(learner, models, held.X, at, classes)
        return np.asarray(((response - (held.y[:, None] == np.arange(classes))) ** 2).sum(axis=1))
    with np.errstate(all="ignore"):
        return np.asarray((respond_each(learner, models, held.X, at) - held.y) ** 2)
