"""Shares of offers for classes: a log pool.

    log chance of a class  =  sum over offers of share * log chance by the offer  -  a number

Shares are not negative and 1 in all; they make the log loss over rows that the offers have not seen
least, with a pull to shares that are believed beforehand:

    log loss of the rows  -  EVEN * sum over offers of belief * log share

Of linear offers such a pool is again one linear model: scores are averaged, and so are
coefficients. Shares are found by Newton's steps, halved where they end going down more steeply than
they began going up. What rows say of shares enters by two sums, so rows may be at home at devices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from persfl.methods.mixed.class_fits import log_chances
from persfl.types import Array, IntArray

EVEN = 5.0  # rows' worth of evidence for the shares that are believed beforehand
STEPS = 30  # at most; ten are usual
SETTLED = 1e-7  # shares that move by less stay
ROOM = 0.9  # of the way to a share of 0, at most, in one step


class PoolSums(NamedTuple):
    """Of hidden rows, at some shares: how the log chance of their labels by the pool changes with
    each share, (offers,), and how that changes, (offers, offers).
    """

    slope: Array
    curve: Array


def pool_sums(log: Array, label: IntArray, weight: Array, share: Array) -> PoolSums:
    """From log chances (rows, offers, classes) of rows with these labels."""
    rows, offers, _ = log.shape
    pooled = log_chances(np.einsum("roc,o->rc", log, share))
    here = np.arange(rows)
    p = np.exp(pooled)
    usual = np.einsum("rc,roc->ro", p, log)
    away = (log - usual[:, :, None]) * np.sqrt(weight[:, None] * p)[:, None]
    flat = np.moveaxis(away, 1, 0).reshape(offers, -1)
    return PoolSums(
        weight @ (log[here, :, label] - usual),
        flat @ flat.T,
    )


def pool_loss(log: Array, label: IntArray, weight: Array, share: Array) -> float:
    """The log loss of these rows by the pool, summed."""
    pooled = log_chances(np.einsum("roc,o->rc", log, share))
    return -float(weight @ pooled[np.arange(len(label)), label])


def settled_shares(ask: Callable[[Array], PoolSums], belief: Array) -> Array:
    """(offers,) shares, from what rows tell at shares that they are asked about, and from what is
    believed.
    """
    even = EVEN * belief
    share = belief
    before: tuple[Array, Array] | None = None  # shares, and the slope there
    for _ in range(STEPS):
        told = ask(share)
        slope = told.slope + even / share
        if before is not None:
            way = share - before[0]
            if way @ slope < -(way @ before[1]):  # too far
                share = (share + before[0]) / 2
                continue
        before = (share, slope)
        step = _uphill(told.curve + np.diag(even / share**2), slope)
        far = float((-step / share).max())
        share = share + step * min(1.0, ROOM / max(far, ROOM))
        if float(np.abs(share - before[0]).max()) < SETTLED:
            break
    return np.asarray(share / share.sum())


def _uphill(curve: Array, slope: Array) -> Array:
    """The step of Newton that leaves the sum of shares as it is."""
    both = np.linalg.solve(curve, np.stack([slope, np.ones(len(slope))], axis=1))
    return np.asarray(both[:, 0] - both[:, 1] * (both[:, 0].sum() / both[:, 1].sum()))


def pool_shares(log: Array, label: IntArray, weight: Array, belief: Array) -> Array:
    """(offers,) shares, from log chances (rows, offers, classes) of rows with these labels, and
    from what is believed: shares that are 1 in all.

    >>> good = np.log([[0.9, 0.1], [0.2, 0.8]])
    >>> log = np.repeat(np.stack([good, good[::-1]], axis=1), 50, axis=0)
    >>> even = np.array([0.5, 0.5])
    >>> pool_shares(log, np.repeat([0, 1], 50), np.ones(100), even).round(1).tolist()
    [1.0, 0.0]
    """
    if log.shape[1] == 1 or float(weight.sum()) <= 0:
        return belief
    return settled_shares(lambda share: pool_sums(log, label, weight, share), belief)
