"""Rows that nobody has, made up of a device's own values: what models say of them is what own rows
cannot see.

Where own rows are fewer than columns, a model can say of them what their labels are and anything
of others. Rows that are hidden from the models of folds show that; of a model of all rows nothing
is hidden. So it is held beside those of folds, which were judged, at rows that are made up.
"""

from __future__ import annotations

import numpy as np

from persfl.types import Array

FURTHER = 10.0  # than folds are from each other, in squares: a model that has strayed


def rolled_columns(X: Array) -> Array:
    """As many rows: each column begins one row further on than the one before.

    >>> rolled_columns(np.array([[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]])).tolist()
    [[1.0, 5.0], [2.0, 6.0], [3.0, 4.0]]
    """
    found = np.empty_like(X)
    for j, column in enumerate(X.T):
        found[:, j] = np.roll(column, -j)
    return found


def has_strayed(whole: Array, folds: Array) -> bool:
    """Whether what a model of all rows says (...) is far from the mean of what those without each
    fold say (folds, ...), beside how far these are.

    >>> folds = np.array([[1.0, 2.0], [1.1, 1.9]])
    >>> [has_strayed(np.array(each), folds) for each in ([1.1, 2.1], [1.0, 9.0])]
    [False, True]
    """
    if not len(folds):
        return False
    usual = folds.mean(axis=0)
    with np.errstate(all="ignore"):
        apart = float(((folds - usual) ** 2).mean())
        far = float(((whole - usual) ** 2).mean())
    return not far <= FURTHER * apart  # or NaN
