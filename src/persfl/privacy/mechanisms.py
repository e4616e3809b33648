"""What may leave a device: sums over its rows, each row's part clipped, with normal noise.

Every answer is one of these. `multiplier` is the noise in units of what one row can add or take
away (`clip`): the one number that privacy hangs on. Nothing else of the rows is looked at.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from persfl.errors import InputError
from persfl.privacy.secure_noise import FINE, NoiseSource, noised, whole_steps
from persfl.types import Array, Data, Differentiable, IntArray

_HAIR = 1e-9  # lengths are rounded: clipped ones stay this much below the bound
LEAST = 1e-3  # less noise protects nothing, and whole steps would overflow
COUNTING = 0.5  # how much of a row's room its count takes, beside what else is told
_TOGETHER = 2**22  # numbers of rows' gradients that are held at a time


def clipped(parts: Array, clip: float) -> Array:
    """(rows, size) rows' parts, shortened to a length of at most `clip`.

    What is no number counts as nothing: whether a row has one must not show.

    >>> clipped(np.array([[3.0, 4.0], [0.3, 0.4], [np.nan, 1.0]]), 1.0).round(
    ...     3
    ... ).tolist()
    [[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]
    """
    sound = np.asarray(np.isfinite(parts).all(axis=1))
    parts = np.where(sound[:, None], parts, 0.0)
    # of huge numbers, whose squares overflow, the direction first
    most = np.maximum(np.abs(parts).max(axis=1, initial=0.0), 1e-300)
    length = most * np.linalg.norm(parts / most[:, None], axis=1)
    return np.asarray(
        parts * np.minimum(1.0, clip / np.maximum(length, 1e-300))[:, None]
    )


def noised_sum(
    parts: Array, clip: float, multiplier: float, source: NoiseSource
) -> Array:
    """(size,) the sum of rows' parts, each clipped, with noise of `multiplier * clip`.

    >>> from persfl.privacy.secure_noise import SystemNoise
    >>> told = noised_sum(
    ...     np.ones((50, 1)), clip=2.0, multiplier=0.01, source=SystemNoise()
    ... )
    >>> bool(abs(told[0] - 50.0) < 0.2)
    True
    """
    _must_be_noise(clip, multiplier)
    return _told(_in_steps(parts, clip, multiplier), clip, multiplier, source)


def _must_be_noise(clip: float, multiplier: float) -> None:
    if not (clip > 0 and multiplier >= LEAST):
        raise InputError(
            f"clip must be above 0 and the noise multiplier at least {LEAST:g}."
            f" Got {clip:g} and {multiplier:g}."
        )


def _in_steps(parts: Array, clip: float, multiplier: float) -> IntArray:
    """(size,) the sum of rows' clipped parts, in whole steps of the grid."""
    step = multiplier * clip * FINE
    whole = whole_steps(clipped(parts, clip * (1.0 - _HAIR)), step)
    return np.asarray(whole.sum(axis=0))


def _told(
    total: IntArray, clip: float, multiplier: float, source: NoiseSource
) -> Array:
    deviation = multiplier * clip
    return noised(total, deviation, deviation * FINE, source)


# Sums of products


class NoisedProducts(NamedTuple):
    """Sums of products of columns (1, x, y), each with noise of this standard deviation."""

    matrix: Array
    deviation: float


def product_clip(features: int) -> float:
    """How long (1, x, y) may be: as long as it usually is in standard units."""
    return float(np.sqrt(features + 2.0))


def noised_products(
    data: Data, clip: float, multiplier: float, source: NoiseSource
) -> NoisedProducts:
    """u u' summed over rows u = (1, x, y), whole rows scaled down to length `clip`.

    Scaling a whole row keeps what is linear in it: such a row weighs less, and says the same.
    Off the diagonal the noise is smaller by sqrt(2), since each product stands there twice.
    """
    rows = np.column_stack([np.ones(data.rows), data.X, data.y])
    rows = clipped(rows * np.sqrt(data.weight)[:, None], clip)
    wide = rows.shape[1]
    at = np.triu_indices(wide)
    twice = np.where(at[0] == at[1], 1.0, np.sqrt(2.0))
    # the length of u u', counted so, is the square of that of u
    parts = rows[:, at[0]] * rows[:, at[1]] * twice
    told = noised_sum(parts, clip**2, multiplier, source) / twice
    matrix = np.zeros((wide, wide))
    matrix[at] = told
    matrix[at[::-1]] = told
    return NoisedProducts(matrix, multiplier * clip**2)


# Steps


def each_row(data: Data) -> Data:
    """Rows as devices of one row each, and behind them one of zeros: what fails on rows fails where
    there are none, too, or it would show whether there are any.
    """
    blank = np.zeros((1, 1, data.X.shape[1])), np.zeros((1, 1))
    X = np.concatenate([data.X[:, None], blank[0]])
    y = np.concatenate([data.y[:, None], blank[1]])
    return Data(X, y, np.ones_like(y))


def row_gradients(learner: Differentiable, model: Array, data: Data) -> Array:
    """(rows, size) the gradient of each row's loss; networks map over rows with `torch.func`."""
    every = each_row(data)
    count = len(every.y)
    size = len(model)
    found = np.zeros((count, size))
    for first in range(0, count, max(1, _TOGETHER // size)):
        part = slice(first, first + max(1, _TOGETHER // size))
        rows = Data(every.X[part], every.y[part], every.weight[part])
        models = np.repeat(model[None], len(rows.y), axis=0)
        with np.errstate(all="ignore"):
            found[part] = learner.grad(models, rows)
    return np.asarray(found[:-1] * data.weight[:, None])


def gradient_clip(features: int) -> float:
    """How long a row's gradient may be: as a row with an intercept is in standard units."""
    return float(np.sqrt(features + 1.0))


def noised_gradient(
    learner: Differentiable,
    model: Array,
    data: Data,
    clip: float,
    multiplier: float,
    source: NoiseSource,
) -> Array:
    """(size + 1,) the sum of rows' clipped gradients, and behind it the number of rows.

    Both stand in one vector, so that how many rows there are is paid for with the step: a row adds
    a gradient of length `clip` and a count that is scaled to half of it.
    """
    parts = clipped(row_gradients(learner, model, data), clip)
    share = clip * COUNTING
    counts = np.full((data.rows, 1), share)
    whole = np.hstack([parts, counts])
    told = noised_sum(whole, clip * float(np.hypot(1.0, COUNTING)), multiplier, source)
    told[-1] /= share
    return told


def count_deviation(beside: int) -> float:
    """The noise of a number of rows that is told beside so many parts of full length, in
    multipliers.

    >>> round(count_deviation(1), 3)
    2.236
    """
    return float(np.hypot(np.sqrt(beside), COUNTING)) / COUNTING


# Losses, and leaves of trees


def noised_losses(
    losses: Array, most: float, multiplier: float, source: NoiseSource
) -> Array:
    """(models + 1,) sums of rows' losses (rows, models), each cut to [0, most], and behind them
    the number of rows.
    """
    many = losses.shape[1]
    kept = np.clip(np.nan_to_num(losses, nan=most, posinf=most), 0.0, most)
    share = most * COUNTING
    counts = np.full((len(losses), 1), share)
    room = most * float(np.sqrt(many + COUNTING**2))
    told = noised_sum(np.hstack([kept, counts]), room, multiplier, source)
    told[-1] /= share
    return told


def noised_leaves(
    leaves: IntArray,
    labels: Array,
    shape: tuple[int, int],
    most: float,
    multiplier: float,
    source: NoiseSource,
) -> Array:
    """(outputs + 1, all leaves of all trees) sums of labels and numbers of rows, leaf by leaf.

    `leaves` (rows, trees) is where each row falls, among the leaves of each tree, of which there
    are `shape`: trees and leaves of one; `labels` (rows, outputs) are cut to a length of at most
    `most`. Rows are taken a few at a time.
    """
    trees, each = shape
    share = most * COUNTING
    room = most * float(np.sqrt(trees * (1.0 + COUNTING**2)))
    _must_be_noise(room, multiplier)
    kept = clipped(labels, most)
    wide = np.hstack([kept, np.full((len(kept), 1), share)])
    many = wide.shape[1]
    total = np.zeros(many * trees * each, dtype=np.int64)
    place = np.clip(leaves, 0, each - 1) + each * np.arange(trees)
    for first in range(0, len(kept), max(1, _TOGETHER // len(total))):
        part = slice(first, first + max(1, _TOGETHER // len(total)))
        chosen = np.zeros((len(place[part]), trees * each))
        np.put_along_axis(chosen, place[part], 1.0, axis=1)
        parts = wide[part, :, None] * chosen[:, None, :]
        total += _in_steps(parts.reshape(len(parts), -1), room, multiplier)
    told = _told(total, room, multiplier, source).reshape(many, -1)
    told[-1] /= share
    return told


def noised_class_leaves(
    leaves: IntArray,
    labels: IntArray,
    shape: tuple[int, int, int],
    multiplier: float,
    source: NoiseSource,
) -> Array:
    """(classes, all leaves of all trees) numbers of rows of each class, leaf by leaf.

    `shape` is how many classes, trees, and leaves of one tree there are. A row counts once in every
    tree, so no number of rows is told beside.
    """
    classes, trees, each = shape
    every = trees * each
    place = np.clip(leaves, 0, each - 1) + each * np.arange(trees)
    where = place + every * np.clip(labels, 0, classes - 1)[:, None]
    counts = np.bincount(where.ravel(), minlength=classes * every)
    told = noised_counts(counts, float(np.sqrt(trees)), multiplier, source)
    return np.asarray(told.reshape(classes, every))


def noised_counts(
    counts: IntArray, length: float, multiplier: float, source: NoiseSource
) -> Array:
    """Counts of rows, of which one row is in so many that they move by `length` at most."""
    _must_be_noise(length, multiplier)
    deviation = multiplier * length
    # a power of two, and at most 1: so ones are whole steps, and no count is rounded
    step = min(2.0 ** np.floor(np.log2(deviation * FINE)), 1.0)
    whole = np.asarray(np.rint(counts / step), dtype=np.int64)
    return noised(whole, deviation, float(step), source)
