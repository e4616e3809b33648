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

Models settle slowly: what few rows leave open is hardly moved by a round. Where rows are in one
place, those of likely centres are also fitted together (`class_together`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from persfl.methods.mixed.class_fits import Axes, chances, pulled
from persfl.methods.mixed.class_rows import ROOM, ClassRows
from persfl.types import Array, IntArray

CENTRES = 300  # devices at most that may be the centre of another; time grows with them
ROUNDS = 6  # of centres and models by turns
LIKELIEST = (
    10  # centres of a device after the first round: others have no share to speak of
)
TINY = 1e-300  # chances below are as bad as any
STEPS = 15  # of a model between two rounds


class CentreShares(NamedTuple):
    """The likeliest centres of each device (copies, n, some), and their shares."""

    who: IntArray
    share: Array


class NearCentres(NamedTuple):
    """The mean centre of each device (copies, n, d, classes), what it is the mean of, and for the
    copy that hides nothing the posterior (n, centres).
    """

    mean: Array
    likely: CentreShares
    posterior: Array


def near_centres(
    parts: Sequence[ClassRows],
    axes: Sequence[Axes],
    start: Array,
    factor: float,
    centres: IntArray,
) -> NearCentres:
    """From models `start` (copies, n, d, classes); `factor` times the prior's variance is s."""
    likely = _likeliest(parts, axes, start, factor, centres, None)
    mean, models = _made(parts, axes, start, likely, centres, factor)
    for _ in range(ROUNDS - 1):
        likely = _likeliest(parts, axes, models, factor, centres, likely)
        mean, models = _made(parts, axes, models, likely, centres, factor)
    # who is likely in the end, all centres asked again
    found = np.empty((start.shape[1], len(centres)))
    for rows, axis in zip(parts, axes, strict=True):
        log = _log_chances(rows, axis, 0, models[0], centres[None], factor)
        log[centres == rows.who[:, None]] = -np.inf
        found[rows.who] = _shares(log)
    return NearCentres(mean, likely, found)


class LikelyCentres(NamedTuple):
    """For one device: the places of its likeliest centres (copies, some), and their shares."""

    places: IntArray
    share: Array


def picked_centres(
    rows: ClassRows, axes: Axes, centres: Array, factor: float
) -> tuple[LikelyCentres, Array]:
    """One round for one device alone, with centres (copies, many, d, classes) that it is sent:
    which are likeliest, and what its rows make of their mean, (copies, d, classes).
    """
    copies, many = centres.shape[:2]
    some = min(LIKELIEST, many)
    found = LikelyCentres(
        np.empty((copies, some), dtype=np.int64), np.empty((copies, some))
    )
    mean = np.empty((copies, 1, *centres.shape[2:]))
    every = np.arange(many)[None]
    for copy, models in enumerate(centres):
        log = _log_chances(rows, axes, copy, models, every, factor)
        best = np.argsort(-log, axis=1, kind="stable")[:, :some]
        found.places[copy] = best[0]
        found.share[copy] = _shares(np.take_along_axis(log, best, axis=1))[0]
        mean[copy, 0] = np.einsum("j,jdk->dk", found.share[copy], models[best[0]])
    return found, pulled(rows, axes, mean, factor, steps=STEPS)[:, 0]


def posterior_of(rows: ClassRows, axes: Axes, centres: Array, factor: float) -> Array:
    """(many,) how likely each of centres (many, d, classes) is for one device, by all rows."""
    every = np.arange(len(centres))[None]
    log = _log_chances(rows, axes, 0, centres, every, factor)
    return np.asarray(_shares(log)[0])


def _likeliest(
    parts: Sequence[ClassRows],
    axes: Sequence[Axes],
    models: Array,
    factor: float,
    centres: IntArray,
    before: CentreShares | None,
) -> CentreShares:
    """Among all centres, or among those that were likeliest before."""
    copies, n = models.shape[:2]
    many = min(LIKELIEST, len(centres))
    found = CentreShares(
        np.empty((copies, n, many), dtype=np.int64), np.empty((copies, n, many))
    )
    for rows, axis in zip(parts, axes, strict=True):
        who = rows.who
        for copy in range(copies):
            asked = centres[None] if before is None else before.who[copy, who]
            log = _log_chances(rows, axis, copy, models[copy], asked, factor)
            known = np.broadcast_to(asked, log.shape)
            log[known == who[:, None]] = -np.inf  # nobody is the own centre
            best = np.argsort(-log, axis=1, kind="stable")[:, :many]
            found.who[copy, who] = np.take_along_axis(known, best, axis=1)
            found.share[copy, who] = _shares(np.take_along_axis(log, best, axis=1))
    return found


def _made(
    parts: Sequence[ClassRows],
    axes: Sequence[Axes],
    models: Array,
    likely: CentreShares,
    centres: IntArray,
    factor: float,
) -> tuple[Array, Array]:
    """The means of likely centres, and what own rows make of them."""
    mean = _means(parts, models, likely, centres)
    found = np.empty_like(mean)
    for rows, axis in zip(parts, axes, strict=True):
        centre = mean[:, rows.who]
        found[:, rows.who] = pulled(rows, axis, centre, factor, steps=STEPS)
    return mean, found


def _means(
    parts: Sequence[ClassRows], models: Array, likely: CentreShares, centres: IntArray
) -> Array:
    """(copies, n, d, classes) of centres, by their shares; of all for devices without a row."""
    found = np.empty_like(models)
    for copy, mine in enumerate(models):
        for rows in parts:
            who = rows.who
            share = likely.share[copy, who]
            found[copy, who] = np.einsum(
                "ij,ijdk->idk", share, mine[likely.who[copy, who]]
            )
            nothing = rows.weight[copy].sum(axis=1) == 0
            found[copy, who[nothing]] = mine[centres].mean(axis=0)
    return found


def _shares(log: Array) -> Array:
    high = np.exp(log - log.max(axis=1, keepdims=True))
    return np.asarray(high / high.sum(axis=1, keepdims=True))


def _log_chances(
    rows: ClassRows,
    axes: Axes,
    copy: int,
    models: Array,
    known: IntArray,
    factor: float,
) -> Array:
    """(n, centres) of these devices' labels; `known` (n or 1, centres) are the centres."""
    n, m, K = rows.Y.shape
    many = known.shape[-1]
    found = np.empty((n, many))
    step = max(1, ROOM // (m * K * many))
    wide = max(1, ROOM // (m * K))  # one device's rows by all centres may be too much
    for i in range(0, n, step):
        some = slice(i, i + step)
        asked = known if len(known) == 1 else known[some]
        mine = Axes(*(part[some] for part in axes))
        for j in range(0, many, wide):
            part = asked[:, j : j + wide]
            W = np.moveaxis(models[part], 1, 2)
            W = W.reshape(*W.shape[:2], -1)
            found[some, j : j + wide] = _evidence(
                rows.take(some), mine, copy, W, factor
            )
    return found


def _evidence(rows: ClassRows, axes: Axes, copy: int, W: Array, factor: float) -> Array:
    n, m, K = rows.Y.shape
    # where all have the same centres it is one product
    same = len(W) == 1
    score = rows.Z.reshape(n * m, -1) @ W[0] if same else rows.Z @ W
    score = score.reshape(n, m, -1, K)
    weight = rows.weight[copy]
    p = chances(score)
    right = np.einsum("nmjk,nmk->nmj", p, rows.Y)
    there = np.einsum("nmj,nm->nj", np.log(np.maximum(right, TINY)), weight)
    away = (weight[..., None, None] * (rows.Y[:, :, None] - p)).reshape(n, m, -1)
    slope = (np.swapaxes(axes.F, 1, 2) @ away).reshape(n, -1, *score.shape[2:])
    curved = np.einsum("nm,nmjk->njk", weight, p * (1.0 - p))
    curved /= np.maximum(weight.sum(axis=1), 1e-12)[:, None, None]
    h = axes.size[:, :, None, None] * curved[:, None]
    gain = slope**2 / (h + 1.0 / factor) - np.log1p(factor * h)
    return np.asarray(there + gain.sum(axis=(1, 3)) / 2.0)
