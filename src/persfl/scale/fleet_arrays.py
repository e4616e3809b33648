"""Files of arrays that a fleet over shards keeps, and what units and trees are in them: nothing in
them is run when they are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from persfl.errors import InputError
from persfl.files import read_whole, write_whole
from persfl.formats import numbers_from, numbers_to
from persfl.learners.shared_trees import BoostedModels, SharedTrees, WeighedTrees
from persfl.learners.storage.boosted_arrays import BOOSTED, boosted_from, boosted_to
from persfl.learners.storage.named_arrays import has_form
from persfl.learners.storage.units_arrays import units_from, units_to
from persfl.types import IntArray
from persfl.units import Units

Arrays = dict[str, Any]
_UNITS = {"mean": "f8 F", "scale": "f8 F", "label": "f8 2"}


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


def shared_units_to(units: Units) -> Arrays:
    """Shared units as arrays."""
    label = np.array([units.label_mean, units.label_scale])
    return {"mean": units.mean, "scale": units.scale, "label": label}


def shared_units_from(arrays: Mapping[str, Any], path: Path) -> Units:
    """The inverse, for arrays of somebody else's, maybe."""
    there = set(_UNITS) <= set(arrays)
    if not there or not has_form(arrays, _UNITS):
        raise damaged(path)
    level, spread = arrays["label"].tolist()
    found = Units.shared(arrays["mean"], arrays["scale"], level, spread)
    told = {name: np.asarray(value) for name, value in units_to(found).items()}
    try:
        return units_from("shared", told, devices=0, columns=len(found.mean))
    except InputError:
        raise damaged(path) from None


def trees_to(trees: WeighedTrees, place: IntArray) -> Arrays:
    """Trees as arrays; those that know no device apart have no places."""
    if not trees:
        return {}
    kept = tuple((share, _at(each, place)) for share, each in trees)
    n = len(place)
    return boosted_to(BoostedModels(np.zeros((n, 1)), kept, np.zeros(n, dtype=bool)))


def _at(trees: SharedTrees, place: IntArray) -> SharedTrees:
    return replace(trees, place=trees.place if len(place) else place)


def trees_from(arrays: Mapping[str, Any], features: int) -> WeighedTrees:
    """The inverse, with every index checked."""
    if BOOSTED not in arrays:
        return ()
    n = len(arrays["boosted_alone"])
    return boosted_from(np.zeros((n, 1)), arrays, features, 0).trees
