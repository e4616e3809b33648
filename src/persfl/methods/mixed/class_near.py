"""Neighbours for classes: every other device may be the centre of a device's model.

    w_i ~ mean over the centres j of N(w_j, s)

How well the rows of i go with the centre j is the chance of their labels, all models near w_j taken
together. With g the slope and h the curvature of the log chance at w_j, in the axes of the prior
(see `class_fits`; h = D^2 times the mean of p (1 - p) over the rows), Laplace's approximation is

    log chance_ij = log chance at w_j + sum g^2 / (h + 1 / s) / 2 - sum log(1 + s h) / 2

and the *posterior* q_ij is its share among all centres. A device's model is then what its own rows
make of the mean centre sum_j q_ij w_j, and from the new models it all begins again. First models
must be distinct: own rows, hardly pulled. After the first round only the likeliest centres of a
device are asked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from persfl.methods.mixed.class_fits import Axes, log_chances, pulled
from persfl.methods.mixed.class_rows import ROOM, ClassRows
from persfl.types import Array, IntArray

ROUNDS = 6
LIKELIEST = 10  # centres that a device keeps after the first round
STEPS = 15  # of a model between two rounds


class NearCentres(NamedTuple):
    """The mean centre of each device (copies, n, d, classes), and for the copy that hides nothing
    the posterior (n, centres).
    """

    mean: Array
    posterior: Array


def near_centres(
    parts: Sequence[ClassRows],
    axes: Sequence[Axes],
    start: Array,
    factor: float,
    centres: IntArray,
) -> NearCentres:
    """From models `start` (copies, n, d, classes); `factor` times the prior's variance is s."""
    models = start
    mean = np.empty_like(start)
    copies, n = start.shape[:2]
    asked = np.zeros((copies, n, 0), dtype=np.int64)
    for turn in range(ROUNDS):
        if turn == 1:
            asked = likely
        many = min(LIKELIEST, len(centres)) if turn == 0 else asked.shape[-1]
        likely = np.empty((copies, n, many), dtype=np.int64)
        share = np.empty((copies, n, many))
        new = np.empty_like(models)
        for rows, axis in zip(parts, axes, strict=True):
            who = rows.who
            for copy in range(copies):
                known = centres[None] if turn == 0 else asked[copy, who]
                log = _log_chances(rows, axis, copy, models[copy], known, factor)
                log[np.broadcast_to(known, log.shape) == who[:, None]] = -np.inf
                best = np.argsort(-log, axis=1, kind="stable")[:, :many]
                at = np.take_along_axis(np.broadcast_to(known, log.shape), best, axis=1)
                likely[copy, who] = at
                share[copy, who] = _shares(np.take_along_axis(log, best, axis=1))
                mean[copy, who] = np.einsum(
                    "ij,ijdk->idk", share[copy, who], models[copy, at]
                )
            new[:, who] = pulled(rows, axis, mean[:, who], factor, steps=STEPS)
        models = new
    return NearCentres(mean, _posterior(likely[0], share[0], centres))


def _shares(log: Array) -> Array:
    high = np.exp(log - log.max(axis=1, keepdims=True))
    return np.asarray(high / high.sum(axis=1, keepdims=True))


def _posterior(likely: IntArray, share: Array, centres: IntArray) -> Array:
    found = np.zeros((len(likely), len(centres)))
    np.put_along_axis(found, np.searchsorted(centres, likely), share, axis=1)
    return found


def _log_chances(
    rows: ClassRows, axes: Axes, copy: int, models: Array, known: IntArray, factor: float
) -> Array:
    """(n, centres) of these devices' labels; `known` (n or 1, centres) are the centres."""
    n, m, K = rows.Y.shape
    many = known.shape[-1]
    found = np.empty((n, many))
    step = max(1, ROOM // (m * K * many))
    for i in range(0, n, step):
        some = slice(i, i + step)
        asked = known if len(known) == 1 else known[some]
        W = np.moveaxis(models[asked], 1, 2).reshape(len(asked), -1, many * K)
        found[some] = _evidence(
            rows.take(some), Axes(*(part[some] for part in axes)), copy, W, factor
        )
    return found


def _evidence(rows: ClassRows, axes: Axes, copy: int, W: Array, factor: float) -> Array:
    n, m, K = rows.Y.shape
    if len(W) == 1:  # the same centres for all: one product
        score = rows.Z.reshape(n * m, -1) @ W[0]
    else:
        score = rows.Z @ W
    score = score.reshape(n, m, -1, K)
    weight = rows.weight[copy]
    log = log_chances(score)
    p = np.exp(log)
    Y = rows.Y[:, :, None]
    there = np.einsum("nmjk,nmk->nj", log, rows.Y * weight[..., None])
    away = (weight[..., None, None] * (Y - p)).reshape(n, m, -1)
    slope = (np.swapaxes(axes.F, 1, 2) @ away).reshape(n, -1, *score.shape[2:])
    curved = np.einsum("nm,nmjk->njk", weight, p * (1.0 - p))
    curved /= np.maximum(weight.sum(axis=1), 1e-12)[:, None, None]
    h = axes.size[:, :, None, None] * curved[:, None]
    gain = slope**2 / (h + 1.0 / factor) - np.log1p(factor * h)
    return np.asarray(there + gain.sum(axis=(1, 3)) / 2.0)
