"""What networks are made of in a blend: averaged gradients, and who is alike by them.

Peers are asked for gradients (a step shows them); their mean is followed by Adam, whose rate fits
any module:

    m <- .9 m + .1 g,   v <- .999 v + .001 g^2,   w <- w - rate * m / (1 - .9^t) / sqrt(v / (1 -
    .999^t))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from persfl.devices import Devices
from persfl.methods.blend.likeness import likeness_of, likest
from persfl.proposers import GradientStep
from persfl.seeds import stream
from persfl.types import Array, Data, Differentiable, IntArray

LONGEST, PACES, FALLS = 1.0, 7, 0.9


def adam(
    learner: Differentiable,
    models: Array,
    data: Data,
    marks: Sequence[int],
    rate: float,
    seen: Any = None,
) -> dict[int, Array]:
    """(copies, size) per mark: these models after so many steps on their rows; `seen` (copies,
    classes) leaves other classes out.

    >>> from persfl import Linear
    >>> rows = Data(np.array([[[1.0], [2.0]]]), np.array([[3.0, 6.0]]))
    >>> found = adam(Linear(), np.zeros((1, 1)), rows, (0, 10, 1000), 0.1)
    >>> [float(found[mark][0, 0].round(2)) for mark in found]
    [0.0, 0.99, 3.0]
    """
    w = np.array(models)
    m, v, found = np.zeros_like(w), np.zeros_like(w), {}
    more = {} if seen is None else {"seen": seen}
    with np.errstate(all="ignore"):  # what overflows is not chosen
        for t in range(1, max(marks) + 2):
            if t - 1 in marks:
                found[t - 1] = w
            if t > max(marks):
                break
            slope = learner.grad(w, data, **more)
            m, v = 0.9 * m + 0.1 * slope, 0.999 * v + 0.001 * slope**2
            w = (
                w - rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
            ).astype(w.dtype)
    return found


def together(
    learner: Differentiable, fleet: Devices, steps: int, rate: float, seed: int
) -> Array:
    """(size,) one model for these devices: their mean gradient, by rows, is that of all rows."""
    data = Data(fleet.X[None], fleet.y[None], fleet.weight[None])
    return np.asarray(
        adam(learner, learner.init(data, stream(seed, "start")), data, (steps,), rate)[
            steps
        ][0]
    )


def nearest(
    learner: Differentiable,
    others: Devices,
    own: Devices,
    at: Sequence[Array],
    who: IntArray,
) -> IntArray:
    """(copies, peers) of `who`, whose gradients at these models point most like one's own.

    Each number of a gradient is measured by how much peers differ in it.
    """
    likeness = np.zeros((len(own), len(who)))
    for model in at:
        theirs, mine = (
            _slopes(learner, rows, model, these)
            for rows, these in ((others, who), (own, np.arange(len(own))))
        )
        centre, scale = theirs.mean(axis=0), theirs.std(axis=0)
        scale = scale + 1e-6 * scale.max() + 1e-12
        theirs, mine = ((part - centre) / scale for part in (theirs, mine))
        likeness += likeness_of(mine, theirs)
    return likest(who, likeness)


def rows_of(others: Devices, near: IntArray, longest: int, wide: int) -> Data:
    """(copies, rows, features) the rows whose gradients these peers' mean gradient is of; every
    peer counts as much.

    Every peer is padded to `longest` rows, and those that are missing to `wide` of them have none.
    """
    near = np.pad(near, ((0, 0), (0, wide - near.shape[1])), constant_values=-1)
    data = padded(others.gather(near), longest)
    each = data.weight.sum(axis=-1, keepdims=True)
    weight = data.weight / np.where(each > 0, each, 1.0)
    return Data(
        data.X.reshape(len(near), -1, others.features),
        data.y.reshape(len(near), -1),
        weight.reshape(len(near), -1),
    )


def padded(data: Data, rows: int) -> Data:
    """At least so many rows; those added weigh nothing.

    >>> padded(Data(np.ones((2, 1)), np.ones(2)), 3).weight.tolist()
    [1.0, 1.0, 0.0]
    """
    more = rows - data.rows
    if more <= 0:
        return data
    none = [(0, 0)] * (data.y.ndim - 1)
    X = np.pad(data.X, [*none, (0, more), (0, 0)])
    return Data(
        X, np.pad(data.y, [*none, (0, more)]), np.pad(data.weight, [*none, (0, more)])
    )


def pace(
    learner: Differentiable, others: Devices, model: Array, steps: int, who: IntArray
) -> float:
    """The longest of 1, 1/4, 1/16 ... such that so many plain steps from this model lower the own
    loss of nine devices in ten.

    `who` are asked, at most PACES times each.
    """
    data, models = others.gather(who), np.broadcast_to(model, (len(who), len(model)))
    now, found = learner.loss(models, data), LONGEST
    for _ in range(PACES):
        after = GradientStep(found, steps=steps).answer(learner, models, data, None)
        if (learner.loss(after, data) < now).mean() >= FALLS:
            break
        found /= 4
    return found


def _slopes(
    learner: Differentiable, rows: Devices, model: Array, who: IntArray
) -> Array:
    return np.asarray(
        learner.grad(np.broadcast_to(model, (len(who), len(model))), rows.gather(who)),
        dtype=np.float64,
    )
