"""Blend as a fleet over shards knows it: from its panel, or, where the whole fleet was in one
place, as it was made there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from persfl.devices import Devices
from persfl.learners.linear import Linear
from persfl.learners.shared_trees import WeighedTrees
from persfl.methods.mixed.device_sums import DeviceSums
from persfl.methods.mixed.latest_rows import LatestRows
from persfl.methods.mixed.near_round import likeliest
from persfl.methods.mixed.panel_draw import Panel
from persfl.methods.mixed.panel_knowledge import PanelKnowledge
from persfl.methods.mixed.population import Population
from persfl.methods.mixed.principal_axes import PrincipalAxes
from persfl.methods.mixed.sums_blend import LinearBlend
from persfl.methods.mixed.told_models import ToldModels
from persfl.scale.fleet_model import Ids
from persfl.types import Array, IntArray


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
    def trees(self) -> WeighedTrees:
        return self.known.trees

    def told(self, inside: Devices, positions: IntArray) -> ToldModels:
        Z = self.known.axes.inside(inside.X)
        given = Z, inside.y, inside.weight, inside.start
        sums, latest = DeviceSums.of(*given), LatestRows.of(*given)
        centre = self.panel.place_of(positions)
        return self.known.told(sums, latest, centre, self.named)


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
    def trees(self) -> WeighedTrees:
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
    learner = Linear(intercept=True)
    return np.roll(population.newcomer(nobody, none, none, learner), 1)
