"""Shares of offers: least squares over the simplex, by rows that the offers had not seen."""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

from persfl.types import Array

EVEN = 10.0  # rows' worth of evidence for even shares


def shares_of(crossed: Array, rows: float) -> Array:
    """(offers,) shares that make a'Qa least, of products of residuals Q summed over `rows` rows.

    Non-negative least squares with one more equation, "the shares are 1 in all", gives the same up
    to a factor: of x = s a it makes s^2 a'Qa + (s - 1)^2 least, which grows with a'Qa.

    >>> shares_of(np.array([[100.0, 0.0], [0.0, 300.0]]), 100.0).round(2).tolist()
    [0.73, 0.27]
    """
    Q = crossed / rows
    size = max(float(np.trace(Q)) / len(Q), 1e-300)
    least = float(np.diag(Q).min())
    Q = (Q + (EVEN / rows * least + 1e-12 * size) * np.eye(len(Q))) / size
    value, U = np.linalg.eigh((Q + Q.T) / 2)
    root = np.sqrt(np.maximum(value, 0.0))[:, None] * U.T
    found, _ = nnls(
        np.vstack([root, np.ones(len(Q))]), np.append(np.zeros(len(Q)), 1.0)
    )
    return np.asarray(found / found.sum())
