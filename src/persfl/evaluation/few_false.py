"""Which of many to call, so that few of those called are called by luck."""

from __future__ import annotations

import numpy as np
from scipy.special import stdtr

from persfl.types import Array, Mask

FALSE = 0.1  # of those that are called


def few_false(luck: Array) -> Mask:
    """Which to call, by chances that each is luck, NaN of which nothing is known: of those called
    one in ten is expected to be (Benjamini and Hochberg).

    >>> few_false(np.array([0.001, 0.02, 0.5, np.nan])).tolist()
    [True, True, False, False]
    >>> few_false(np.linspace(0.02, 1.0, 50)).any()
    np.False_
    """
    known = np.flatnonzero(~np.isnan(luck))
    order = known[np.argsort(luck[known], kind="stable")]
    step = FALSE * (np.arange(len(order)) + 1) / max(len(order), 1)
    under = np.flatnonzero(luck[order] <= step)
    found = np.zeros(len(luck), dtype=bool)
    found[order[: under[-1] + 1 if len(under) else 0]] = True
    return found


def luck_of_mean(mean: Array, spread: Array, rows: Array) -> Array:
    """The chance of means this far above 0 were they 0 (Student's), of values of such a `spread`
    over so many rows; NaN of a single row.

    >>> luck_of_mean(np.array([0.0, 9.0]), np.ones(2), np.array([4.0, 1.0])).tolist()
    [0.5, nan]
    """
    several = rows > 1.0 + 1e-9
    freedom = np.where(several, rows - 1.0, 1.0)
    error = np.maximum(spread / np.sqrt(np.maximum(rows, 1.0)), 1e-300)
    return np.asarray(np.where(several, stdtr(freedom, -mean / error), np.nan))
