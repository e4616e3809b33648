"""Losses of a linear score `z` against a label `y`: value, slope with respect to z, and the
response that z stands for.

Where a loss has a kink the slope is a sub-gradient (0 at the kink itself).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from persfl.types import Array


class Loss(NamedTuple):
    """One loss; `value` and `slope` take (z, y, delta), `response` takes z, `wants` says which
    labels fit.
    """

    code: int  # the number the compiled kernels know it by
    value: Callable[[Array, Array, float], Array]
    slope: Callable[[Array, Array, float], Array]
    response: Callable[[Array], Array]
    fits: Callable[[Array], Any]
    wants: str


def sigmoid(z: Array) -> Array:
    """1 / (1 + exp(-z)).

    >>> sigmoid(np.array([-1000.0, 0.0])).tolist()
    [0.0, 0.5]
    """
    with np.errstate(over="ignore"):  # far below 0 the quotient is 0, as it should be
        return np.asarray(1.0 / (1.0 + np.exp(-z)))


def softmax(z: Array) -> Array:
    """exp(z) scaled to sum 1 along the last axis, without overflow."""
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def _anything(y: Array) -> Any:
    return np.ones(y.shape, dtype=bool)


def _same(z: Array) -> Array:
    return z


def _huber(z: Array, y: Array, delta: float) -> Array:
    r = np.abs(y - z)
    return np.where(r <= delta, 0.5 * r**2, delta * (r - 0.5 * delta))


def _logistic(z: Array, y: Array, delta: float) -> Array:
    return np.asarray(np.maximum(z, 0.0) - y * z + np.log1p(np.exp(-np.abs(z))))


LOSSES = {
    "squared": Loss(
        0,
        lambda z, y, _: (y - z) ** 2,
        lambda z, y, _: -2.0 * (y - z),
        _same,
        _anything,
        "numbers",
    ),
    "absolute": Loss(
        1,
        lambda z, y, _: np.abs(y - z),
        lambda z, y, _: np.sign(z - y),
        _same,
        _anything,
        "numbers",
    ),
    "huber": Loss(
        2,
        _huber,
        lambda z, y, delta: np.clip(z - y, -delta, delta),
        _same,
        _anything,
        "numbers",
    ),
    "logistic": Loss(
        3,
        _logistic,
        lambda z, y, _: sigmoid(z) - y,
        sigmoid,
        lambda y: (y >= 0) & (y <= 1),
        "labels 0 and 1 (or chances between)",
    ),
    "poisson": Loss(
        4,
        lambda z, y, _: np.exp(z) - y * z,
        lambda z, y, _: np.exp(z) - y,
        np.exp,
        lambda y: y >= 0,
        "counts of at least 0",
    ),
}
