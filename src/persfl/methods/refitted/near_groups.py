"""Devices that share centres, as a few groups: each is large enough for a model of its own."""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans

from persfl.types import Array, IntArray

GROUPS = 5  # at most
ROWS = 100  # of a group at least: with 300, kinds of trees were found half as well


def near_groups(posterior: Array, rows: IntArray, seed: int) -> IntArray:
    """(n,) the group of every device, of devices that have so many `rows`.

    Devices and centres are the two sides of a graph whose edges are the posterior; its first
    singular vectors tell sides apart that have few edges between them (spectral co-clustering).

    >>> alike = np.kron(np.eye(2), np.ones((4, 4))) / 4
    >>> groups = near_groups(alike, np.full(8, 100), 0)
    >>> [len(set(groups[:4])), len(set(groups[4:])), len(set(groups))]
    [1, 1, 2]
    """
    n = len(posterior)
    many = int(min(GROUPS, n, posterior.shape[1], rows.sum() // ROWS))
    if many < 2:
        return np.zeros(n, dtype=np.int64)
    centre = np.maximum(posterior.sum(axis=0), 1e-12)
    edges = posterior / np.sqrt(centre)
    U, size, _ = np.linalg.svd(edges, full_matrices=False)
    axes = U[:, :many] * size[:many]
    length = np.maximum(np.linalg.norm(axes, axis=1, keepdims=True), 1e-12)
    # as many groups as there are parts of the graph that hang together, not more
    many = max(2, int((size[:many] > 0.5 * size[0]).sum()))
    maker = KMeans(many, n_init=4, random_state=seed % 2**31)
    found = maker.fit_predict((axes / length)[:, :many], sample_weight=rows)
    return _large(np.asarray(found, dtype=np.int64), rows)


def _large(groups: IntArray, counts: IntArray) -> IntArray:
    """Groups of too few rows become one with the largest; numbered without gaps."""
    rows = np.bincount(groups, weights=counts)
    small = rows[groups] < ROWS
    groups = np.where(small, int(rows.argmax()), groups)
    return np.asarray(np.unique(groups, return_inverse=True)[1], dtype=np.int64)
