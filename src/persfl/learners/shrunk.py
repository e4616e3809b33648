"""Fits to a device's few rows, shrunk toward another model: what a careful person does alone.

    min_w  mean loss on own rows + strength / rows * ||w - anchor||^2

over slopes; the intercept is free.

Training alone, and fine-tuning a shared model on own rows, are the rivals of asking peers. Plain
fits to few rows are straw men, so these choose how much to shrink: squared loss by leaving one row
out, each device for itself (in closed form); other losses by two halves of at most 30 devices'
rows, one strength for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from persfl.batches import batches
from persfl.types import Array, Data

if TYPE_CHECKING:
    from persfl.devices import Devices
    from persfl.learners.linear import Linear

# of squared loss, in units where features have spread 1
STRENGTHS = tuple(10.0 ** np.arange(-3.0, 3.5, 0.5))
OTHERS = (0.01, 0.1, 1.0, 10.0)
# most curvature per unit of the rows' Gram matrix
_CURVATURE = {"logistic": 0.25, "multinomial": 0.5}
_STEPS = 300
_CHUNK = 16 * 2**20


def shrunk(
    learner: Linear,
    devices: Devices,
    anchor: Array | None = None,
    strength: float | None = None,
) -> Array:
    """(devices, size) one model per device, fitted to its own rows and shrunk toward `anchor`
    (default: zero slopes).

    `strength`, of losses other than squared, says how much instead of halves of rows.

    >>> from persfl import Devices, Linear
    >>> devices = Devices.of(
    ...     [
    ...         ([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0]),
    ...         ([[0.0], [1.0], [2.0]], [1.0, 0.0, 1.0]),
    ...     ]
    ... )
    >>> shrunk(Linear(intercept=True), devices).round(2).tolist()
    [[1.0, 0.0], [0.0, 0.67]]
    """
    size = learner.size(devices.features)
    anchor = np.zeros(size) if anchor is None else anchor
    if learner.kind == "squared":
        fits = [_ridges(learner, data, anchor) for data in _chunks(devices)]
        return np.concatenate(fits)
    strength = strength_for(learner, devices, anchor) if strength is None else strength
    fits = []
    for data in _chunks(devices):
        fits.append(
            pulled_toward(learner, data, anchor, np.full(len(data.y), strength))
        )
    return np.concatenate(fits)


def _chunks(devices: Devices) -> Iterator[Data]:
    """Devices of similar size would pad less; devices in order keep the code simple, and chunks
    bound the padding.
    """
    each = 8 * (devices.features + 2) * int(devices.counts.max(initial=1))
    everybody = np.arange(len(devices))
    for part in batches(len(devices), each, _CHUNK):
        yield devices.gather(everybody[part])


def _ridges(learner: Linear, data: Data, anchor: Array) -> Array:
    """All devices of a batch: the strength with the least leave-one-out error, then the fit.

    A weight counts copies of a row, so one copy is left out: with A = sum w x x' + s I and unit
    leverage h = x'A^-1 x, the error of predicting a row that was left out is residual / (1 - h).
    The intercept is taken out by centring, which adds 1 / sum w to h.
    """
    X = data.X
    d = X.shape[-1]
    weight = data.weight
    total = weight.sum(axis=-1)
    start = np.broadcast_to(anchor, (len(data.y), anchor.size))
    y = data.y - learner.scores(start, X)
    free = np.zeros(len(y))
    if learner.intercept:
        x_sum = (weight[..., None] * X).sum(axis=-2)
        x_mean = x_sum / total[:, None]
        y_mean = (weight * y).sum(axis=-1) / total
        X = X - x_mean[:, None, :]
        y = y - y_mean[:, None]
        free = 1.0 / total
    weighed = X * weight[..., None]
    gram = np.matmul(np.swapaxes(weighed, -1, -2), X)
    root, turn = np.linalg.eigh(gram)
    root = np.maximum(root, 0.0)
    along = np.matmul(X, turn)  # rows in the directions of the Gram matrix
    label = (weight * y)[..., None]
    pull = np.matmul(np.swapaxes(along, -1, -2), label)[..., 0]
    best = np.zeros_like(pull)
    least = np.full(len(y), np.inf)
    for strength in STRENGTHS:
        stiff = root + strength
        coefficient = pull / stiff
        left = y - (along * coefficient[:, None, :]).sum(axis=-1)
        leverage = (along**2 / stiff[:, None, :]).sum(axis=-1)
        leverage = leverage + free[:, None]
        # each row predicted by the others
        without = left / np.maximum(1.0 - leverage, 1e-6)
        error = (weight * without**2).sum(axis=-1)
        better = error < least
        best[better] = coefficient[better]
        least[better] = error[better]
    slopes = np.matmul(turn, best[..., None])[..., 0]
    models = start.copy()
    models[:, :d] += slopes
    if learner.intercept:
        models[:, d] += y_mean - (x_mean * slopes).sum(axis=-1)
    return models


def pulled_toward(
    learner: Linear, data: Data, anchor: Array, strength: Array | float
) -> Array:
    """(..., size) any other loss, any leading axes (`strength` has them too)."""
    pull = np.asarray(strength) / data.weight.sum(axis=-1)
    slopes = np.ones(anchor.shape)
    if learner.intercept:
        slopes.reshape(learner.classes, -1)[:, -1] = 0.0
    if learner.kind in _CURVATURE:
        return _accelerated(learner, data, anchor, pull[..., None], slopes)
    models = np.empty((*pull.shape, anchor.size))
    for i in np.ndindex(pull.shape):
        own = Data(data.X[i], data.y[i], data.weight[i])
        models[i] = _descended(learner, own, anchor, float(pull[i]), slopes)
    return models


def _accelerated(
    learner: Linear, data: Data, anchor: Array, pull: Array, slopes: Array
) -> Array:
    """All devices at once: gradient steps with momentum (Nesterov), momentum dropped where it
    points uphill.
    """
    X = learner.with_intercept(data.X)
    share = data.weight / data.weight.sum(axis=-1, keepdims=True)
    weighed = X * share[..., None]
    gram = np.matmul(np.swapaxes(weighed, -1, -2), X)
    largest = np.linalg.eigvalsh(gram)[..., -1:]
    step = 1.0 / (_CURVATURE[learner.kind] * largest + 2.0 * pull + 1e-12)
    shape = (*pull.shape[:-1], anchor.size)
    w = np.broadcast_to(anchor, shape).copy()
    ahead = w
    t = np.ones_like(pull)
    for _ in range(_STEPS):
        back = 2.0 * pull * (ahead - anchor) * slopes
        slope = learner.grad(ahead, data) + back
        new = ahead - step * slope
        move = new - w
        uphill = (slope * move).sum(axis=-1, keepdims=True) > 0
        t = np.where(uphill, 1.0, t)
        longer = (1.0 + np.sqrt(1.0 + 4.0 * t**2)) / 2.0
        swing = np.where(uphill, 0.0, (t - 1.0) / longer)
        ahead = new + swing * move
        w = new
        t = longer
        if np.abs(slope).max() < 1e-5:
            break
    return w


def _descended(
    learner: Linear, data: Data, anchor: Array, pull: float, slopes: Array
) -> Array:
    """One device, a loss whose curvature has no bound or that has kinks."""
    from scipy.optimize import minimize

    used = data.weight > 0
    data = Data(data.X[used], data.y[used], data.weight[used])

    def objective(w: Array) -> tuple[float, Array]:
        away = (w - anchor) * slopes
        value = float(learner.loss(w, data)) + pull * float(away @ away)
        return value, learner.grad(w, data) + 2.0 * pull * away

    how = {"jac": True, "method": "L-BFGS-B", "options": {"maxiter": 200}}
    return np.asarray(minimize(objective, anchor, **how).x)


def strength_for(learner: Linear, devices: Devices, anchor: Array) -> float:
    """The strength with which halves of devices' rows predict the other halves best, over at
    most 30 devices spread evenly.
    """
    several = np.flatnonzero((devices.counts >= 2) & (devices.total > 0))
    if not len(several):
        return 1.0
    longest = int(devices.counts[several].max())
    room = _CHUNK // (8 * 8 * longest * learner.classes)
    most = int(np.clip(room, 2, 30))
    spread = np.linspace(0, len(several) - 1, most).round().astype(int)
    data = devices.gather(several[np.unique(spread)])
    even = np.arange(data.rows) % 2 == 0
    # (devices, 2, rows)
    halves = np.stack([data.weight * even, data.weight * ~even], axis=1)
    usable = (halves.sum(axis=-1) > 0).all(axis=1)
    if not usable.any():
        return 1.0
    halves = halves[usable]
    # every device learns from each of its halves with every strength
    shape = (len(halves), 2, len(OTHERS))
    size = data.X.shape[-2:]
    X = np.broadcast_to(data.X[usable, None, None], (*shape, *size))
    y = np.broadcast_to(data.y[usable, None, None], (*shape, data.rows))
    learn = Data(X, y, np.broadcast_to(halves[:, :, None], y.shape))
    judge = Data(X, y, np.broadcast_to(halves[:, ::-1, None], y.shape))
    strengths = np.broadcast_to(np.array(OTHERS), shape)
    models = pulled_toward(learner, learn, anchor, strengths)
    missed = np.minimum(learner.loss(models, judge), 1e6)
    return OTHERS[int(np.argmin(missed.sum(axis=(0, 1))))]
