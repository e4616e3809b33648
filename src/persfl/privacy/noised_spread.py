"""Where columns lie within ranges that are declared: noised sums of values and of their squares.

Values are in units of the range, -1 to 1. Steps want columns about their means, and a range says
little of these; so these sums are told once, for a tenth of the budget.
"""

from __future__ import annotations

import numpy as np

from persfl.privacy.choice import WIDTH
from persfl.privacy.mechanisms import noised_sum
from persfl.privacy.secure_noise import NoiseSource
from persfl.types import Array


def spread_room(columns: int) -> float:
    """How long a row's part is, at most: a one, values and squares."""
    return float(np.sqrt(2.0 * columns + 1.0))


def told_spread(values: Array, multiplier: float, source: NoiseSource) -> Array:
    """(2 columns + 1,) the number of rows, sums of values and of squares, with noise."""
    inside = np.clip(np.nan_to_num(values), -1.0, 1.0)
    parts = np.hstack([np.ones((len(inside), 1)), inside, inside**2])
    return noised_sum(parts, spread_room(values.shape[1]), multiplier, source)


def spread_from(told: Array, deviation: float) -> tuple[Array, Array]:
    """(columns,) means and spreads from what devices told together, with noise of this deviation;
    where noise drowns them, the middle of the range and the spread of even values.

    >>> loud, quiet = np.array([9.0, 1.0, 2.0]), np.array([900.0, 450.0, 450.0])
    >>> [float(each[0].round(3)) for each in spread_from(loud, 30.0)]
    [0.0, 0.333]
    >>> [float(each[0].round(3)) for each in spread_from(quiet, 1.0)]
    [0.5, 0.5]
    """
    columns = (len(told) - 1) // 2
    count = max(float(told[0]), deviation, 1.0)  # fewer rows could be noise
    noise = deviation / count
    mean = np.clip(told[1 : columns + 1] / count, -1.0, 1.0)
    sure = 1.0 - (noise / np.maximum(np.abs(mean), 1e-300)) ** 2
    mean = mean * np.maximum(sure, 0.0)
    square = np.clip(told[columns + 1 :] / count - mean**2, 0.0, 1.0)
    # a spread that noise could have made is that of even values
    spread = np.where(square > 2.0 * noise, np.sqrt(square), 2.0 / WIDTH)
    return mean, spread
