"""Adam, whose rate fits any module:

m <- .9 m + .1 g,   v <- .999 v + .001 g^2
w <- w - rate * m / (1 - .9^t) / sqrt(v / (1 - .999^t))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from persfl.learners.network import Network
from persfl.types import Array, Data, Differentiable


def descended(
    learner: Differentiable,
    models: Array,
    data: Data,
    marks: Sequence[int],
    rate: float,
    seen: Array | None = None,
) -> dict[int, Array]:
    """(copies, size) per mark: models after so many steps on these rows; of a network where it is
    computed. `seen` (copies, classes) leaves the others out of a network's loss.
    """
    if isinstance(learner, Network):
        return learner.descended(models, data, marks, rate, seen)
    return adam(lambda w: learner.grad(w, data), models, marks, rate)


def adam(
    slope: Callable[[Array], Array], models: Array, marks: Sequence[int], rate: float
) -> dict[int, Array]:
    """(copies, size) per mark: these models after so many steps along the slopes.

    >>> found = adam(lambda w: 2 * (w - 3.0), np.zeros((1, 1)), (0, 10, 1000), 0.1)
    >>> [float(found[mark][0, 0].round(2)) for mark in found]
    [0.0, 0.99, 3.0]
    """
    w = np.array(models)
    m = np.zeros_like(w)
    v = np.zeros_like(w)
    found = {}
    with np.errstate(all="ignore"):  # what overflows is not chosen
        for t in range(1, max(marks) + 2):
            if t - 1 in marks:
                found[t - 1] = w
            if t > max(marks):
                break
            g = slope(w)
            m = 0.9 * m + 0.1 * g
            v = 0.999 * v + 0.001 * g**2
            step = rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
            w = (w - step).astype(w.dtype)
    return found
