"""Public points for Algorithm 2, made up from what is known of the fleet as a whole.

A point is no row of anybody: each column is drawn on its own from a normal distribution with the
fleet's mean and spread (the numbers that shared units reveal anyway); columns of zeros and ones by
their frequency, and of the columns that encode one category exactly one is 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from persfl.seeds import stream
from persfl.units import Units

if TYPE_CHECKING:
    from persfl.devices import Devices
    from persfl.types import Array, Mask


def public_points(
    devices: Devices, count: int, *, seed: int, categories: Sequence[Sequence[int]] = ()
) -> Array:
    """(count, features) points in the rows' own units.

    >>> from persfl import Devices
    >>> devices = Devices.of([([[0.0, 1.0], [1.0, 3.0]], [0.0, 1.0])])
    >>> points = public_points(devices, 1000, seed=0)
    >>> sorted(set(points[:, 0].tolist())), bool(abs(points[:, 1].mean() - 2.0) < 0.1)
    ([0.0, 1.0], True)
    """
    units = Units.of(devices, "shared", labels=False)
    X = devices.X
    # column by column: no second copy of all rows
    binary = np.array([np.isin(column, (0, 1)).all() for column in X.T])
    same = np.array([(column == column[0]).all() for column in X.T])
    mean = np.where(same, X[0], units.mean)
    scale = np.where(same, 0.0, units.scale)
    return made_up(mean, scale, binary, count, seed=seed, categories=categories)


def made_up(
    mean: Array,
    scale: Array,
    binary: Mask | Array,
    count: int,
    *,
    seed: int,
    categories: Sequence[Sequence[int]] = (),
) -> Array:
    """(count, features) points from each column's mean and spread (0: always the same); `binary`
    columns hold zeros and ones.

    >>> made_up(
    ...     np.array([5.0]), np.zeros(1), np.zeros(1, dtype=bool), 2, seed=0
    ... ).tolist()
    [[5.0], [5.0]]
    """
    generator = stream(seed, "public").generator()
    spread = np.where(scale > 0, scale, 1.0)
    points = mean + spread * generator.standard_normal((count, len(mean)))
    for j in range(len(mean)):
        if binary[j]:
            points[:, j] = generator.random(count) < mean[j]
        elif scale[j] == 0:
            points[:, j] = mean[j]
    for group in categories:
        chosen = generator.choice(len(group), size=count, p=_shares(mean[list(group)]))
        points[:, list(group)] = chosen[:, None] == np.arange(len(group))
    return np.asarray(points, dtype=np.float64)


def _shares(means: Array) -> Array:
    means = np.maximum(means, 0.0)
    total = means.sum()
    return means / total if total > 0 else np.full(len(means), 1.0 / len(means))
