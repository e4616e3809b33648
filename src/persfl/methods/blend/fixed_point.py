"""One model for many devices: where their averaged steps no longer move it.

Every device answers with a step from the same model, and the mean of the answers is the next model.
Plain repetition takes hundreds of rounds. Anderson's acceleration looks back at the last models and
moves and jumps to where, if all were straight, the move would be zero: ten rounds for squared loss,
thirty for classes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from persfl.types import Array

DEPTH = 30  # models and moves that are looked back at
WILD = 4.0  # a move this many times the smallest so far: the jump was too bold
# a device's move this many times the middle one's is shortened to that: no device alone decides
LONG = 10.0


def settled(answer: Callable[[Array], Array], start: Array, rounds: int) -> Array:
    """The model that `answer` moved least, after so many questions.

    >>> curve = np.diag([1.0, 30.0])
    >>> settled(lambda w: w - 0.02 * (curve @ w - 1.0), np.zeros(2), 6).round(
    ...     4
    ... ).tolist()
    [1.0, 0.0333]
    """
    best = start
    least = np.inf
    along = np.zeros_like(start)
    bold = 1.0
    models: list[Array] = []
    moves: list[Array] = []
    model = start
    for _ in range(rounds):
        move = answer(model) - model
        length = float(np.linalg.norm(move))
        if not length <= WILD * least:  # or NaN
            if not np.isfinite(least):
                break
            bold = bold / 2.0
            models = []
            moves = []
            model = best + bold * along
            continue
        if length < least:
            best = model
            least = length
            along = move
        if length <= 1e-10 * (1.0 + float(np.linalg.norm(model))):
            break
        models = [*models, model][-DEPTH:]
        moves = [*moves, move][-DEPTH:]
        model = model + move
        if len(moves) > 1:
            turns, ways = (
                np.diff(np.stack(each, axis=1), axis=1) for each in (moves, models)
            )
            gram = turns.T @ turns
            gram += (1e-10 * np.trace(gram) + 1e-300) * np.eye(len(gram))
            model = model - (ways + turns) @ np.linalg.solve(gram, turns.T @ move)
    return best


def mean_of(answers: Array, model: Array, weight: Array) -> Array:
    """(size,) the weighted mean of answers (devices, size) to one model; nobody's move counts for
    more than ten usual ones.

    >>> mean_of(
    ...     np.array([[1.0], [1.0], [1.0], [1e9]]), np.zeros(1), np.ones(4)
    ... ).tolist()
    [3.25]
    """
    good = np.isfinite(answers).all(axis=1)
    if not good.any():
        return np.full(len(model), np.nan)
    moves = tamed(answers[good] - model)
    return np.asarray(model + weight[good] @ moves / weight[good].sum())


def middle_size(sizes: Array) -> float:
    """What is usual: the middle one, and of two the smaller. Halfway between them, an absurd one
    would be usual.

    >>> middle_size(np.array([1.0, 3.0, 1e9])), middle_size(np.array([1e9, 1.0]))
    (3.0, 1.0)
    """
    return float(np.median(sizes) if len(sizes) > 2 else np.min(sizes))


def tamed(moves: Array) -> Array:
    """(devices, size) moves with the very long ones shortened."""
    length = np.linalg.norm(moves, axis=1, keepdims=True)
    most = LONG * middle_size(length.ravel())
    return (
        np.asarray(moves * np.minimum(1.0, most / np.maximum(length, 1e-300)))
        if most > 0
        else moves
    )


def usual(slopes: Array) -> Array:
    """(devices, size) gradients at one model; NaN, as if not told, where one is more than ten times
    as long as is usual. Shortened to that, one of five would still outweigh the others.

    >>> usual(np.array([[1.0], [1.0], [np.nan], [1e9]])).ravel().tolist()
    [1.0, 1.0, nan, nan]
    """
    length = np.linalg.norm(slopes, axis=1, keepdims=True)
    told = length[np.isfinite(length)]
    most = LONG * middle_size(told) if len(told) else 0.0
    return np.where(length > most, np.nan, slopes) if most > 0 else slopes


def counted(weight: Array) -> Array:
    """(devices,) what weights that devices tell count as: nobody's as more than ten usual ones,
    nor, of three or more, as more than those of all others together.

    >>> counted(np.array([6.0, 9.0, 12.0, 1e15])).tolist()
    [6.0, 9.0, 12.0, 27.0]
    >>> float(counted(np.append(np.full(30, 6.0), 1e15)).max())
    60.0
    """
    told = weight[weight > 0]
    if len(told) < 3:
        return weight
    found = np.minimum(weight, LONG * np.median(told))
    heaviest = int(found.argmax())
    found[heaviest] = min(found[heaviest], np.delete(found, heaviest).sum())
    return np.asarray(found)
