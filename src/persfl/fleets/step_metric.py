"""How long a step is, in a target's own metric.

Lengths are taken in the metric of all first steps, `|s|^2 = s' (F'F / P + ridge)^-1 s` with the P
first steps as rows of F: a direction in which everybody steps far (a feature on a large scale, or
one that many others follow) counts for less, so that it cannot drown the rest. A first step counts
as at most twice the median one, here and in F, so that nobody gains by a false start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from persfl.types import Array, Mask

# of the mean variance of first steps: what a direction that no first step took is worth
RIDGE = 0.1
# a first step counts as at most twice the median length, four times its square
LONGEST = np.log(4.0)
NONE = np.finfo(np.float64).tiny  # stands for a length of 0


class StepMetric:
    """The metrics of all targets, made anew for those whose first steps have changed."""

    def __init__(self, targets: int, size: int) -> None:
        # (T, rank, size) directions, (T, rank) squared spreads along them, (T,) that of the rest
        self._axes = np.zeros((targets, 0, size))
        self._spread = np.ones((targets, 0))
        self._ridge = np.ones(targets)
        # how many first steps a target's metric was made of
        self._counted = np.full(targets, -1)
        self.longest = np.zeros(targets)
        """(T,) what a first step may count as, at most: the log of its square."""

    def update(self, first: Array, known: Mask) -> None:
        """Take these first steps (T, P, size) into account; `known` (T, P) says which there are."""
        count = known.sum(axis=1)
        stale = np.flatnonzero(count != self._counted)
        if not len(stale):
            return
        T, P, size = first.shape
        rank = min(P, size)
        if self._axes.shape[1] != rank:
            self._axes = np.zeros((T, rank, size))
            self._spread = np.ones((T, rank))
            self._ridge = np.ones(T)
            stale = np.arange(T)
        with np.errstate(divide="ignore"):
            far = np.log((first**2).sum(axis=2))
        most = median(far, known)[:, None] + LONGEST
        clip = np.exp(np.minimum(0.0, most - np.maximum(far, -700.0)) / 2)
        for t in stale.tolist():
            # no more: a row of zeros may change the last bit, and others may have met more peers
            rows = slice(0, int(count[t]))
            clipped = first[t, rows] * clip[t, rows, None]
            _, s, V = np.linalg.svd(clipped, full_matrices=False)
            variance = s**2 / max(1, count[t])
            self._ridge[t] = max(RIDGE * float(variance.sum()) / size, NONE)
            self._axes[t, : len(s)] = V
            self._spread[t, : len(s)] = variance + self._ridge[t]
        self._counted = count
        self.longest = median(self.log_length(first), known) + LONGEST

    def log_length(self, steps: Array) -> Array:
        """(T, S) the log of squared lengths of (T, S, size) steps."""
        along = np.matmul(steps, self._axes.transpose(0, 2, 1)) ** 2
        square = (along / self._spread[:, None]).sum(axis=2)
        # then there are directions that no first step took
        few = self._counted < self._axes.shape[2]
        if few.any():
            across = np.maximum((steps**2).sum(axis=2) - along.sum(axis=2), 0.0)
            rest = across / self._ridge[:, None]
            square = square + np.where(few[:, None], rest, 0.0)
        return np.asarray(np.log(np.maximum(square, NONE)))


def median(values: Array, known: Mask) -> Array:
    """(T,) the median of the known among (T, P) values; 0 where there are none.

    >>> median(np.array([[3.0, 1.0, 9.0]]), np.array([[True, True, False]])).tolist()
    [2.0]
    """
    ordered = np.sort(np.where(known, values, np.inf), axis=1)
    many = known.sum(axis=1)
    row = np.flatnonzero(many > 0)
    lower = (many[row] - 1) // 2
    upper = many[row] // 2
    out = np.zeros(len(values))
    out[row] = (ordered[row, lower] + ordered[row, upper]) / 2
    return out
