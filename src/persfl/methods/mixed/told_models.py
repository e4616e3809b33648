"""What becomes of devices that a fleet tells what it knows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from persfl.types import Array, IntArray


class ToldModels(NamedTuple):
    """What becomes of devices (n): `models` (n, columns) with the level first where there is one;
    `made_of` (n, 3) own rows, fleet, neighbours; of the likeliest centres their places `at`
    (n, named), how likely each is this device's centre, the chance that it is like it, and the mean
    squared errors of their models on its rows; and that of one model for all.
    """

    models: Array
    made_of: Array
    at: IntArray
    posterior: Array
    chance: Array
    missed: Array
    fleet_error: Array

    @property
    def share(self) -> Array:
        """(n, named) how much of a model is theirs, as far as it is known what it is made of."""
        near = self.made_of[:, 2:]
        return np.where(np.isfinite(near), near, 1.0) * self.posterior
