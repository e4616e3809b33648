"""One model for each cluster of devices: k-means on what a device's rows are like.

    a device is   mean of x,  mean of x y' (and of y')      y' = the label, or one column per class

each divided by its spread over devices. It sees features directly, so it is hard to beat where those are what devices differ in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.cluster import KMeans

from persfl.comparing.dealing import taken
from persfl.devices import Devices
from persfl.seeds import stream
from persfl.types import Array, IntArray
from persfl.worth import pooled_fit


def clustered_fits(learner: Any, rows: Devices, *, told: int = 4, classes: int = 0, seed: int = 0) -> Array:
    """(devices, size) every device's model is that of its cluster, one of `told`.

    >>> from persfl import Linear
    >>> from persfl.sources import clustered_regression
    >>> rows = clustered_regression(n=40, clusters=2, rows=20, features=3, seed=0)
    >>> models = clustered_fits(Linear(intercept=True), rows, told=2)
    >>> float(np.abs(models[:, :3] - rows.true_weights).max().round(6))
    0.0
    """
    group = clusters(rows, told, classes=classes, seed=seed)
    fits = [pooled_fit(learner, taken(rows, group == k), seed) for k in range(group.max() + 1)]
    return np.stack(fits)[group]


def clusters(rows: Devices, told: int, *, classes: int = 0, seed: int = 0) -> IntArray:
    """(devices,) the cluster of each, numbered from 0 without gaps."""
    n, marks = len(rows), []
    for i in range(n):
        X, y, weight = rows[i].X, rows[i].y, rows[i].weight / rows.total[i]
        said = (y[:, None] == np.arange(classes)) + 0.0 if classes else y[:, None]
        products = np.column_stack([X, np.ones(len(y))]).T @ (weight[:, None] * said)
        marks.append(np.concatenate([weight @ X, products.ravel()]))
    means = np.array(marks)
    alike = (means - means.mean(axis=0)) / (means.std(axis=0) + 1e-9)
    found = KMeans(min(told, n), n_init=5, random_state=stream(seed, "clusters").integer()).fit_predict(alike)
    return np.asarray(np.unique(found, return_inverse=True)[1])
