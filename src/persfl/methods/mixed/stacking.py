"""Shares of offers: least squares over the simplex, by rows that the offers had not seen."""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

from persfl.types import Array

# Rows' worth of evidence for the shares that are expected before any row is seen: twelve rows
# cannot choose among five offers.
EXPECTED = 10.0
SIMPLEST = 0.5  # of these shares is for one model for all, the rest is even
_ONE = 1e4  # weight of the equation "all shares are 1 together"


def shares_of(crossed: Array, rows: float, simplest: int) -> Array:
    """(offers,) the shares a that make a'Qa least, of products of residuals Q summed over `rows`
    rows; `simplest` is the offer of one model for all.

    >>> shares_of(np.diag([1e6, 3e6]), 1e6, 0).round(2).tolist()
    [0.75, 0.25]
    >>> shares_of(np.diag([100.0, 300.0]), 1.0, 1).round(2).tolist()
    [0.54, 0.46]
    >>> shares_of(np.zeros((3, 3)), 0.0, 1).tolist()
    [0.25, 0.5, 0.25]
    """
    many = len(crossed)
    if many == 1:
        return np.ones(1)
    expected = np.full(many, (1.0 - SIMPLEST) / (many - 1))
    expected[simplest] = SIMPLEST
    return drawn_shares(crossed, rows, expected, 1.0 / (many * expected))


def drawn_shares(crossed: Array, rows: float, expected: Array, firm: Array) -> Array:
    """(offers,) the same, drawn to shares that are expected; `firm` says how firmly each is."""
    many = len(crossed)
    if not rows > 0 or many == 1:  # nothing was hidden, or nothing to choose
        return expected
    Q = crossed / rows
    size = max(float(np.trace(Q)) / many, 1e-300)
    value, U = np.linalg.eigh((Q + Q.T) / (2 * size))
    root = np.sqrt(np.maximum(value, 0.0))[:, None] * U.T
    least = max(float(np.diag(Q).min()) / size, 1e-12)
    pull = np.sqrt(EXPECTED / rows * least * firm)
    equations = np.vstack([root, np.diag(pull), np.full(many, _ONE)])
    wanted = np.concatenate([np.zeros(many), pull * expected, [_ONE]])
    found, _ = nnls(equations, wanted)
    return np.asarray(found / found.sum())
