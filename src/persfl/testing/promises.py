"""What every check is made of: a promise, and rows to hold it against."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from persfl.learners.linear import Linear
from persfl.traits import traits_of
from persfl.types import Data, Learner


def expect(held: object, promise: str) -> None:
    """Stop where a promise is broken."""
    if not held:
        raise AssertionError(f"broken promise: {promise}")


def same(one: ArrayLike, other: ArrayLike) -> bool:
    """Whether two arrays are equal to the last bit."""
    return np.array_equal(np.asarray(one), np.asarray(other))


def ordinary_rows(learner: Learner) -> Data:
    """Rows that fit a learner: numbers, or labels where it is a classifier."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    score = X @ np.array([1.0, -0.5, 0.25]) + 0.3 * rng.standard_normal(40)
    kind = traits_of(learner).loss
    classes = learner.classes if isinstance(learner, Linear) else 3
    y = score
    if kind in ("logistic", "log", "error"):
        y = (score > 0) + 0.0
    elif kind == "multinomial":
        y = np.clip(np.floor(score + 1.5), 0, classes - 1)
    elif kind == "poisson":
        y = np.floor(np.exp(score))
    return Data(X, y, rng.uniform(0.5, 1.5, 40))


def with_padding(data: Data) -> Data:
    """The same rows and two of weight 0."""
    return Data(
        np.vstack([data.X, data.X[:2] + 5.0]),
        np.append(data.y, data.y[:2]),
        np.append(data.weight, [0.0, 0.0]),
    )


def doubled(data: Data) -> Data:
    """A batch of two: the rows, and the same rows in reverse."""
    parts = (data.X, data.y, data.weight)
    return Data(*(np.stack([part, part[::-1]]) for part in parts))


def nth(batch: Data, i: int) -> Data:
    """One device of a batch."""
    return Data(batch.X[i], batch.y[i], batch.weight[i])
