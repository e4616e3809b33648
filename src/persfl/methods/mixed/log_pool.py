"""Shares of offers for classes: a log pool.

    log chance of a class  =  sum over offers of share * log chance by the offer  -  a number

Shares are not negative and 1 in all; they make the log loss over rows that the offers have not seen
least, with a pull to even shares (the logarithms of shares count, as if some rows more had been seen
that go with all offers alike). Of linear offers such a pool is again one linear model: scores are
averaged, and so are coefficients.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from persfl.methods.mixed.class_fits import chances, log_chances
from persfl.types import Array, IntArray

EVEN = 3.0  # rows' worth of evidence for even shares


def pool_shares(log: Array, label: IntArray, weight: Array) -> Array:
    """(offers,) shares, from log chances (rows, offers, classes) of rows with these labels.

    >>> good = np.log([[0.9, 0.1], [0.2, 0.8]])
    >>> log = np.stack([good, good[::-1]], axis=1)
    >>> pool_shares(np.repeat(log, 50, axis=0), np.repeat([0, 1], 50), np.ones(100)).round(1)
    array([1., 0.])
    """
    rows, offers, _ = log.shape
    told = float(weight.sum())
    if offers == 1 or told <= 0:
        return np.full(offers, 1.0 / offers)
    right = log[np.arange(rows), :, label]
    even = EVEN / offers

    def loss(free: Array) -> tuple[float, Array]:
        share = chances(free)
        both = np.einsum("roc,o->rc", log, share)
        pooled = log_chances(both)
        value = -weight @ pooled[np.arange(rows), label]
        value -= even * np.log(share).sum()
        # of the pool by shares, then of shares by what is free
        missed = right - np.einsum("rc,roc->ro", np.exp(pooled), log)
        slope = -(weight @ missed) - even / share
        return value / told, share * (slope - share @ slope) / told

    found = minimize(loss, np.zeros(offers), jac=True, method="L-BFGS-B")
    return chances(found.x)
