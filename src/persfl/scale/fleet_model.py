"""What a fleet has learned, as a value that makes any device's model, in the table's own units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from persfl.devices import Devices
from persfl.learners.shared_trees import WeighedTrees
from persfl.methods.mixed.told_models import ToldModels
from persfl.types import Array, IntArray
from persfl.units import Units

Ids = NDArray[Any]


class Knower(Protocol):
    """Who tells devices their models."""

    @property
    def pooled(self) -> Array:
        """(columns,) one model for all, the level first."""

    @property
    def newcomer(self) -> Array:
        """(columns,) the model of a device that was not there, the level first."""

    @property
    def trees(self) -> WeighedTrees:
        """Trees that are added to every model."""

    @property
    def peers(self) -> Ids:
        """(centres,) the ids of those that may be named as helpers."""

    def told(self, inside: Devices, positions: IntArray) -> ToldModels:
        """The models of devices with these rows, in the units of the fleet, at these positions."""


@dataclass(frozen=True, eq=False)
class FleetModel:
    """Models in the table's own units."""

    units: Units
    knower: Knower
    apart: bool
    """Whether trees tell devices apart."""

    def told(self, rows: Devices, positions: IntArray) -> ToldModels:
        """What becomes of devices with these rows."""
        return self.knower.told(self.units.inside(rows), positions)

    def coefficients(self, models: Array) -> Array:
        """(n, features + 1) in the table's units, the intercept last; `models` have it first."""
        units = self.units
        slopes = models[:, 1:] * units.label_scale / units.scale
        level = models[:, 0] * units.label_scale + units.label_mean
        return np.column_stack([slopes, level - slopes @ units.mean])

    def by_trees(self, X: Array, positions: IntArray) -> Array:
        """(rows,) what trees add to linear models of these rows, in the label's units."""
        found = np.zeros(len(X))
        if not self.knower.trees:
            return found
        inside = self.units.features(X, positions)
        owner = positions if self.apart else np.full(len(X), -1)
        for share, trees in self.knower.trees:
            found += share * trees.predict(inside, owner)
        return found * self.units.label_scale
