"""Public points for Algorithm 2, made up from what is known of the fleet as a whole.

A point is no row of anybody: each column is drawn on its own from a normal distribution with the fleet's mean and spread (the
numbers that shared units reveal anyway); columns of zeros and ones by their frequency, and of the columns that encode one category
exactly one is 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from persfl.devices import Devices
from persfl.seeds import stream
from persfl.types import Array
from persfl.units import Units


def public_points(devices: Devices, count: int, *, seed: int, categories: Sequence[Sequence[int]] = ()) -> Array:
    """(count, features) points in the rows' own units.

    >>> devices = Devices.of([([[0.0, 1.0], [1.0, 3.0]], [0.0, 1.0])])
    >>> points = public_points(devices, 1000, seed=0)
    >>> sorted(set(points[:, 0].tolist())), bool(abs(points[:, 1].mean() - 2.0) < 0.1)
    ([0.0, 1.0], True)
    """
    units = Units.of(devices, "shared", labels=False)
    generator = stream(seed, "public").generator()
    points = units.mean + units.scale * generator.standard_normal((count, devices.features))
    for j in range(devices.features):
        column = devices.X[:, j]
        if ((column == 0) | (column == 1)).all():
            points[:, j] = generator.random(count) < units.mean[j]
        elif (column == column[0]).all():
            points[:, j] = column[0]
    for group in categories:
        chosen = generator.choice(len(group), size=count, p=_shares(units.mean[list(group)]))
        points[:, list(group)] = chosen[:, None] == np.arange(len(group))
    return np.asarray(points, dtype=np.float64)


def _shares(means: Array) -> Array:
    means = np.maximum(means, 0.0)
    return means / means.sum() if means.sum() > 0 else np.full(len(means), 1.0 / len(means))
