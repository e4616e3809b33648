"""Devices whose models have centres near each other, as a few groups: each has rows enough for a
model of its own.
"""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score

from persfl.methods.mixed.sums_blend import SumsBlend
from persfl.types import Array, IntArray

GROUPS = 5  # at most; more would be too small for most tables, and cost more fits
ROWS = 100  # of a group at least: with 300, kinds of trees were found half as well
SAMPLE = 1000  # devices by which numbers of groups are compared: each with every other


def answers_of(known: SumsBlend) -> Array:
    """(n, columns) the models of the offer `near`, as far apart as what they say of the fleet's
    rows is on average.
    """
    models = known.whole.models[known.names.index("near")]
    square = known.sums.square.sum(axis=0) / known.sums.weight.sum()
    value, U = np.linalg.eigh(square)
    return np.asarray(models @ (U * np.sqrt(np.maximum(value, 0.0))))


def near_groups(answers: Array, rows: IntArray, seed: int) -> IntArray:
    """(n,) the group of every device, of devices that have so many `rows`.

    Centres of groups are found by k-means, and there are as many as stand apart most clearly
    (silhouettes).

    >>> answers = np.array([[0.0], [0.1], [0.2], [9.0], [9.1], [9.2]])
    >>> groups = near_groups(answers, np.full(6, 100), 0)
    >>> [len(set(groups[:3])), len(set(groups[3:])), len(set(groups))]
    [1, 1, 2]
    """
    n = len(answers)
    most = int(min(GROUPS, n // 2, rows.sum() // ROWS))
    best = np.zeros(n, dtype=np.int64)
    clearest = -1.0
    luck = seed % 2**31
    for many in range(2, most + 1):
        found = KMeans(many, n_init=4, random_state=luck).fit_predict(answers)
        apart = silhouette_score(
            answers, found, sample_size=min(n, SAMPLE), random_state=luck
        )
        if apart > clearest:
            clearest = float(apart)
            best = np.asarray(found, dtype=np.int64)
    return _large(best, rows)


def _large(groups: IntArray, counts: IntArray) -> IntArray:
    """Groups of too few rows become one with the largest; numbered without gaps."""
    rows = np.bincount(groups, weights=counts)
    small = rows[groups] < ROWS
    groups = np.where(small, int(rows.argmax()), groups)
    return np.asarray(np.unique(groups, return_inverse=True)[1], dtype=np.int64)
