"""What a fleet has learned, as a value that makes any device's model: from its own sums alone, or,
where the whole fleet was in one place, as it was made there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from persfl.devices import Devices
from persfl.learners.shared_trees import SharedTrees
from persfl.methods.mixed.device_sums import DeviceSums
from persfl.methods.mixed.linear_rule import LinearBlend
from persfl.methods.mixed.near_round import likeliest
from persfl.methods.mixed.panel_knowledge import Panel, PanelKnowledge, ToldModels
from persfl.methods.mixed.population import Population
from persfl.methods.mixed.principal_axes import PrincipalAxes
from persfl.types import Array, IntArray
from persfl.units import Units

Trees = tuple[tuple[float, SharedTrees], ...]
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
    def trees(self) -> Trees:
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


@dataclass(frozen=True, eq=False)
class PanelKnower:
    """A fleet larger than its panel."""

    known: PanelKnowledge
    panel: Panel
    peers: Ids
    named: int

    @property
    def pooled(self) -> Array:
        return _pooled(self.known.population)

    @property
    def newcomer(self) -> Array:
        return _newcomer(self.known.population)

    @property
    def trees(self) -> Trees:
        return self.known.trees

    def told(self, inside: Devices, positions: IntArray) -> ToldModels:
        Z = self.known.axes.inside(inside.X)
        sums = DeviceSums.of(Z, inside.y, inside.weight, inside.start)
        centre = self.panel.place_of(positions)
        return self.known.told(sums, centre, self.named)


@dataclass(frozen=True, eq=False)
class WholeFleet:
    """A fleet of which everybody was there when it was blended."""

    found: LinearBlend
    peers: Ids
    named: int

    @property
    def pooled(self) -> Array:
        return _pooled(self.found.population)

    @property
    def newcomer(self) -> Array:
        return _newcomer(self.found.population)

    @property
    def trees(self) -> Trees:
        return self.found.trees

    def told(self, inside: Devices, positions: IntArray) -> ToldModels:
        found = self.found
        chance = found.likeness.chance[positions]
        posterior = found.posterior[positions]
        at = likeliest(posterior, chance)[:, : self.named]
        missed = found.centre_error[positions]
        return ToldModels(
            found.models[positions],
            found.made_of[positions],
            at,
            np.take_along_axis(posterior, at, axis=1),
            np.take_along_axis(chance, at, axis=1),
            np.take_along_axis(missed, at, axis=1),
            found.fleet_error[positions],
        )


def _pooled(population: Population) -> Array:
    """One model for all: the centre of the offer in which nothing is personal."""
    axes = population.axes if population.axes.size else None
    return np.asarray(PrincipalAxes(True, axes).outside(population.centre[:1])[0])


def _newcomer(population: Population) -> Array:
    """The model of a device without rows, the level first."""
    none = np.zeros(0)
    nobody = np.zeros((0, len(_pooled(population)) - 1))
    return np.roll(population.newcomer(nobody, none, none, True), 1)
