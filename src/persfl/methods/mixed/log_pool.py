"""Shares of offers for classes: a log pool.

    log chance of a class  =  sum over offers of share * log chance by the offer  -  a number

Shares are not negative and 1 in all; they make the log loss over rows that the offers have not seen
least, with a pull to shares that are believed beforehand:

    log loss of the rows  -  EVEN * sum over offers of belief * log share

Of linear offers such a pool is again one linear model: scores are averaged, and so are
coefficients.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from persfl.methods.mixed.class_fits import chances, log_chances
from persfl.types import Array, IntArray

EVEN = 5.0  # rows' worth of evidence for the shares that are believed beforehand


def pool_shares(log: Array, label: IntArray, weight: Array, belief: Array) -> Array:
    """(offers,) shares, from log chances (rows, offers, classes) of rows with these labels, and
    from what is believed: shares that are 1 in all.

    >>> good = np.log([[0.9, 0.1], [0.2, 0.8]])
    >>> log = np.repeat(np.stack([good, good[::-1]], axis=1), 50, axis=0)
    >>> even = np.array([0.5, 0.5])
    >>> pool_shares(log, np.repeat([0, 1], 50), np.ones(100), even).round(1).tolist()
    [1.0, 0.0]
    """
    rows, offers, _ = log.shape
    told = float(weight.sum())
    if offers == 1 or told <= 0:
        return belief
    right = log[np.arange(rows), :, label]
    even = EVEN * belief

    def loss(free: Array) -> tuple[float, Array]:
        share = chances(free)
        both = np.einsum("roc,o->rc", log, share)
        pooled = log_chances(both)
        value = float(weight @ pooled[np.arange(rows), label])
        value += float(even @ np.log(share))
        # of the pool by shares, then of shares by what is free
        missed = right - np.einsum("rc,roc->ro", np.exp(pooled), log)
        slope = -(weight @ missed) - even / share
        return -value / told, share * (slope - share @ slope) / told

    found = minimize(loss, np.log(belief), jac=True, method="L-BFGS-B")
    return chances(found.x)
