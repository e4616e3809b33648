"""The linear mixed model of a fleet: common effects, how much devices differ, and noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from persfl.devices import Devices
from persfl.learners.linear import Linear
from persfl.learners.shared_trees import WeighedTrees
from persfl.methods.mixed.device_sums import DeviceSums
from persfl.methods.mixed.told_models import ToldModels
from persfl.scale.fleet_model import Ids
from persfl.types import Array, IntArray


@dataclass(frozen=True, eq=False)
class MixedKnower:
    """`common` effects with the level last, `Sigma` of the `random` columns, the noise's variance:
    a device's own effects follow from these and from its own sums (empirical Bayes).
    """

    common: Array
    Sigma: Array
    noise: float
    random: IntArray

    @property
    def pooled(self) -> Array:
        return np.roll(self.common, 1)

    @property
    def newcomer(self) -> Array:
        return np.roll(self.common, 1)

    @property
    def trees(self) -> WeighedTrees:
        return ()

    @property
    def peers(self) -> Ids:
        return np.zeros(0, dtype=np.int64)

    def told(self, inside: Devices, positions: IntArray) -> ToldModels:
        sums = sums_with_level(inside)
        F = self.random
        left = (sums.product - sums.square @ self.common)[:, F] / self.noise
        G = sums.square[:, F[:, None], F] / self.noise
        # Sigma (1 + G Sigma)^-1 = (G + Sigma^-1)^-1, also where Sigma is 0
        inner = np.eye(len(F)) + G @ self.Sigma
        own = np.linalg.solve(inner, left[:, :, None])[:, :, 0] @ self.Sigma
        n = len(positions)
        models = np.repeat(self.common[None], n, axis=0)
        models[:, F] += own
        nobody = np.zeros((n, 0))
        missed = sums.residual(np.repeat(self.common[None], n, axis=0)) / sums.weight
        unknown = np.full((n, 3), np.nan)
        none: Any = nobody.astype(np.int64)
        first = np.roll(models, 1, axis=1)
        return ToldModels(first, unknown, none, nobody, nobody, nobody, missed)


def sums_with_level(inside: Devices) -> DeviceSums:
    """The sums of every device's rows, with a column of ones behind the others."""
    Z = Linear(intercept=True).with_intercept(inside.X)
    return DeviceSums.of(Z, inside.y, inside.weight, inside.start)
