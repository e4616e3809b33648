"""What a fleet has learned, in one file of arrays, for workers that make its models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from persfl.learners.storage.named_arrays import has_form
from persfl.methods.mixed.likeness import FleetFacts
from persfl.methods.mixed.panel_draw import Panel
from persfl.methods.mixed.panel_knowledge import PanelKnowledge
from persfl.methods.mixed.population import Population
from persfl.scale.fleet_arrays import (
    Arrays,
    damaged,
    fleet_arrays,
    shared_units_from,
    shared_units_to,
    trees_from,
    trees_to,
    write_arrays,
)
from persfl.scale.fleet_model import FleetModel
from persfl.scale.held_models import HeldModels, held_from, is_held
from persfl.scale.mixed_knower import MixedKnower
from persfl.scale.panel_knower import PanelKnower

_KNOWN = {
    "known_names": "U A",
    "known_shares": "f8 A",
    "known_spread": "f8 D D",
    "known_unknown": "f8 K D D",
    "known_same": "f8 M M",
    "known_facts": "f8 2",
    "panel_devices": "i8 P",
    "panel_centres": "i8 M",
    "peers": "U|i8 M",
}
_MIXED = {
    "mixed_common": "f8 D",
    "mixed_Sigma": "f8 Q Q",
    "mixed_noise": "f8 1",
    "mixed_random": "i8 Q",
}


def write_knower(path: Path, model: FleetModel) -> None:
    """What workers need to know."""
    knower = model.knower
    units = shared_units_to(model.units)
    if isinstance(knower, MixedKnower):
        write_arrays(path, units | _mixed_to(knower))
        return
    if isinstance(knower, HeldModels):
        write_arrays(path, units | knower.to_arrays())
        return
    assert isinstance(knower, PanelKnower)
    known = knower.known
    facts = known.facts
    arrays = {
        "known_names": np.array(known.names),
        "known_shares": known.shares,
        "known_spread": known.spread,
        "known_unknown": known.unknown,
        "known_same": facts.same,
        "known_facts": np.array([facts.whole, float(facts.kinds)]),
        "panel_devices": knower.panel.devices,
        "panel_centres": knower.panel.centres,
        "peers": knower.peers,
    }
    nobody = np.zeros(0, dtype=np.int64)
    arrays |= known.population.to_notes() | units
    write_arrays(path, arrays | trees_to(known.trees, nobody))


def read_knower(path: Path, named: int) -> FleetModel:
    """The inverse."""
    arrays = fleet_arrays(path)
    units = shared_units_from(arrays, path)
    features = len(units.mean)
    if "mixed_common" in arrays:
        return FleetModel(units, _mixed_from(arrays, features, path), apart=False)
    if is_held(arrays):
        return FleetModel(units, held_from(arrays, features, path), apart=False)
    population = Population.from_notes(arrays, features)
    if population is None or not set(_KNOWN) <= set(arrays):
        raise damaged(path)
    sizes = {"D": population.centre.shape[1], "K": len(population.names)}
    if not has_form(arrays, _KNOWN, M=len(population.centres), **sizes):
        raise damaged(path)
    whole, kinds = arrays["known_facts"].tolist()
    known = PanelKnowledge(
        population=population,
        level=True,
        names=tuple(arrays["known_names"].tolist()),
        shares=arrays["known_shares"],
        spread=arrays["known_spread"],
        unknown=arrays["known_unknown"],
        facts=FleetFacts(arrays["known_same"], whole, bool(kinds)),
        trees=trees_from(arrays, features),
    )
    panel = Panel(arrays["panel_devices"], arrays["panel_centres"])
    return FleetModel(
        units, PanelKnower(known, panel, arrays["peers"], named), apart=False
    )


def _mixed_to(knower: MixedKnower) -> Arrays:
    return {
        "mixed_common": knower.common,
        "mixed_Sigma": knower.Sigma,
        "mixed_noise": np.array([knower.noise]),
        "mixed_random": knower.random,
    }


def _mixed_from(arrays: Mapping[str, Any], features: int, path: Path) -> MixedKnower:
    there = set(_MIXED) <= set(arrays)
    if not there or not has_form(arrays, _MIXED, D=features + 1):
        raise damaged(path)
    random = arrays["mixed_random"]
    if not ((random >= 0) & (random <= features)).all():
        raise damaged(path)
    noise = float(arrays["mixed_noise"][0])
    return MixedKnower(arrays["mixed_common"], arrays["mixed_Sigma"], noise, random)
