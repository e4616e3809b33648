"""What a fleet has learned, in one file of arrays: nothing in it is run when it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from persfl.errors import InputError
from persfl.files import read_whole, write_whole
from persfl.formats import numbers_from, numbers_to
from persfl.learners.shared_trees import BoostedModels, SharedTrees
from persfl.learners.storage.boosted_arrays import BOOSTED, boosted_from, boosted_to
from persfl.learners.storage.named_arrays import has_form
from persfl.methods.mixed.likeness import FleetFacts
from persfl.methods.mixed.panel_knowledge import Panel, PanelKnowledge
from persfl.methods.mixed.population import Population
from persfl.scale.fleet_model import FleetModel, PanelKnower, Trees
from persfl.scale.mixed_knower import MixedKnower
from persfl.types import Array, IntArray
from persfl.units import Units

Arrays = dict[str, Any]
_UNITS = {"mean": "f8 F", "scale": "f8 F", "label": "f8 2"}
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


def write_arrays(path: Path, arrays: Arrays) -> None:
    """All of them, or nothing."""
    write_whole(path, numbers_to(arrays))


def fleet_arrays(path: Path) -> Arrays:
    """Those of a file, which may be somebody else's."""
    try:
        return dict(numbers_from(read_whole(path)))
    except Exception as error:  # whatever it is: the file's fault
        raise damaged(path) from error


def damaged(path: Path) -> InputError:
    """What to say of a file that makes no sense."""
    return InputError(f"{str(path)!r} is damaged. Fit again.")


def units_to(units: Units) -> Arrays:
    """Shared units as arrays."""
    label = np.array([units.label_mean, units.label_scale])
    return {"mean": units.mean, "scale": units.scale, "label": label}


def units_from(arrays: Mapping[str, Any], path: Path) -> Units:
    """The inverse, for arrays of somebody else's, maybe."""
    there = set(_UNITS) <= set(arrays)
    if not there or not has_form(arrays, _UNITS):
        raise damaged(path)
    sound = all(np.isfinite(arrays[name]).all() for name in _UNITS)
    if not sound or not (arrays["scale"] > 0).all() or not arrays["label"][1] > 0:
        raise damaged(path)
    return shared_units(arrays["mean"], arrays["scale"], *arrays["label"].tolist())


def shared_units(
    mean: Array, scale: Array, label_mean: float, label_scale: float
) -> Units:
    """Shared units, which need no device's own means."""
    nobody = np.zeros((0, len(mean)))
    return Units("shared", mean, scale, label_mean, label_scale, nobody, nobody[:, 0])


def trees_to(trees: Trees, place: IntArray) -> Arrays:
    """Trees as arrays; those that know no device apart have no places."""
    if not trees:
        return {}
    kept = tuple((share, _at(each, place)) for share, each in trees)
    n = len(place)
    return boosted_to(BoostedModels(np.zeros((n, 1)), kept, np.zeros(n, dtype=bool)))


def _at(trees: SharedTrees, place: IntArray) -> SharedTrees:
    return replace(trees, place=trees.place if len(place) else place)


def trees_from(arrays: Mapping[str, Any], features: int) -> Trees:
    """The inverse, with every index checked."""
    if BOOSTED not in arrays:
        return ()
    n = len(arrays["boosted_alone"])
    return boosted_from(np.zeros((n, 1)), arrays, features, 0).trees


def write_knower(path: Path, model: FleetModel) -> None:
    """What workers need to know."""
    knower = model.knower
    if isinstance(knower, MixedKnower):
        write_arrays(path, units_to(model.units) | _mixed_to(knower))
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
    arrays |= known.population.to_notes() | units_to(model.units)
    write_arrays(path, arrays | trees_to(known.trees, nobody))


def read_knower(path: Path, named: int) -> FleetModel:
    """The inverse."""
    arrays = fleet_arrays(path)
    units = units_from(arrays, path)
    features = len(units.mean)
    if "mixed_common" in arrays:
        return FleetModel(units, _mixed_from(arrays, features, path), apart=False)
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
