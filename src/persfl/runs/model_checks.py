"""What the words and numbers of a run folder must be, before anything is made of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from persfl.checks import some
from persfl.errors import InputError
from persfl.estimators.method import METHODS
from persfl.evaluation.verdicts import Worth
from persfl.trust import Trust
from persfl.types import Array
from persfl.units import KINDS, Units

SETTINGS = (
    "device",
    "method",
    "peers",
    "rounds",
    "step_size",
    "units",
    "holdout",
    "trials",
    "fallback",
    "unseen",
    "impute",
    "window",
    "online_rounds",
    "budget",
    "ordered",
    "compute",
    "n_jobs",
    "random_state",
)
_MEASURED = ("held", "evidence", "spread", "error_own", "error_personal")
_UNITS = ("mean", "scale", "label_mean", "label_scale", "centres", "label_centres")


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _truth(value: Any) -> bool:
    return isinstance(value, bool)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _ids(value: Any) -> bool:
    """Different texts or numbers, at least one."""
    if not isinstance(value, list) or not value or not all(map(_id, value)):
        return False
    return len(set(value)) == len(value)


def _id(value: Any) -> bool:
    """A text, or a number that a table can hold."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return isinstance(value, str) or (
        isinstance(value, float) and not math.isnan(value)
    )


def _settings(value: Any) -> bool:
    if not isinstance(value, dict) or not set(value) <= set(SETTINGS):
        return False
    device = value.get("device")
    return all(map(_plain, value.values())) and (device is None or _text(device))


def _described(value: Any) -> bool:
    return isinstance(value, dict) and _text(value.get("kind"))


def _maybe(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


_WANTED: dict[str, Callable[[Any], bool]] = {
    "kind": lambda value: value in ("PersonalizedRegressor", "PersonalizedClassifier"),
    "settings": _settings,
    "adopter": _maybe(_described),
    "devices": _ids,
    "learner": _described,
    "own_learner": _truth,
    "units": lambda value: value in KINDS,
    "step_size": _number,
    "rounds": _count,
    "notes": _texts,
    "features": lambda value: _count(value) and value >= 1,
    "names": _maybe(_texts),
    "preparation": _maybe(lambda value: isinstance(value, dict)),
}
_POSSIBLE: dict[str, Callable[[Any], bool]] = {
    "method": lambda value: value in (*METHODS, "own"),
    "classes": _ids,
    "pooled": lambda value: value in KINDS,
    "worth": lambda value: (
        isinstance(value, dict) and set(value) == {"scale", "classes"}
    ),
}


def check_words(about: Any) -> None:
    """Stop where `model.json` is not what it must be."""
    if not isinstance(about, dict):
        raise InputError("it must be an object of names and values.")
    absent = [name for name in _WANTED if name not in about]
    if absent:
        raise InputError(f"it has no {some(absent)}.")
    wrong = [name for name, good in _WANTED.items() if not good(about[name])]
    wrong += [
        name
        for name, good in _POSSIBLE.items()
        if name in about and not good(about[name])
    ]
    if wrong:
        raise InputError(f"it has an unusable {some(wrong)}.")
    if (about["kind"] == "PersonalizedClassifier") != ("classes" in about):
        raise InputError("a classifier must have classes, and a regressor none.")
    if about["names"] is not None and len(about["names"]) != about["features"]:
        raise InputError("there must be a name for every feature.")


def check_spec(spec: Mapping[str, Any]) -> None:
    """Stop where `spec.json` lacks what predicting and reporting take from it."""
    checks: dict[str, Callable[[Any], bool]] = {
        "device": _text,
        "label": _text,
        "features": lambda value: _texts(value) and bool(value),
        "separator": _maybe(_letter),
        "decimal": _letter,
        "thousands": _maybe(_letter),
        "groups": _maybe(_pairs),
    }
    wrong = [name for name, good in checks.items() if not good(spec.get(name))]
    if wrong:
        raise InputError(f"it has an unusable {some(wrong)}.")


def _letter(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 1


def _pairs(value: Any) -> bool:
    """A list of device ids and their groups."""
    if not isinstance(value, list):
        return False
    return all(
        isinstance(v, list) and len(v) == 2 and _plain(v[0]) and _text(v[1])
        for v in value
    )


def units_from(
    kind: str, arrays: Mapping[str, Any], *, devices: int, columns: int
) -> Units:
    """Units whose numbers are finite and as many as they must be."""
    shapes = {
        "mean": (columns,),
        "scale": (columns,),
        "label_mean": (),
        "label_scale": (),
        "centres": (devices, columns),
        "label_centres": (devices,),
    }
    found: dict[str, Any] = {}
    for name in _UNITS:
        array = arrays[name]
        sound = array.dtype.kind in "fi" and array.shape == shapes[name]
        if not sound or not np.isfinite(array).all():
            raise InputError(
                "units must be finite numbers, for every column and device."
            )
        found[name] = (
            float(array) if name.startswith("label_") and not array.ndim else array
        )
    if not (found["scale"] > 0).all() or not found["label_scale"] > 0:
        raise InputError("units must be above 0.")
    return Units(kind=kind, **found)


def units_to(units: Units) -> dict[str, Any]:
    """The numbers of units, by name."""
    return {name: getattr(units, name) for name in _UNITS}


def trust_from(arrays: Mapping[str, Any], devices: int) -> Trust:
    """Trust among this many devices, of counts that are counts."""
    trust = Trust.from_arrays(arrays)
    targets = trust.targets
    known = targets.ndim == 1 and len(np.unique(targets)) == len(targets)
    if trust.n != devices or not known or ((targets < 0) | (targets >= devices)).any():
        raise InputError("trust must be about the devices of the run.")
    for name in ("asked", "answered", "adopted"):
        column = getattr(trust.pairs, name)
        if not ((column >= 0) & (column < 2**53)).all():
            raise InputError("how often devices were asked must be counts.")
    return trust


def losses_from(losses: Any, devices: int) -> Array:
    """Own losses by round and device."""
    if losses.dtype.kind != "f" or losses.ndim != 2 or losses.shape[1] != devices:
        raise InputError("losses must be numbers for every round and device.")
    return np.asarray(losses)


def counts_from(rows: Any, devices: int) -> Any:
    """How many rows each device has."""
    if rows.dtype.kind != "i" or rows.shape != (devices,) or (rows < 0).any():
        raise InputError("there must be a number of rows for every device.")
    return rows


def truths_from(values: Any, devices: int) -> Any:
    """Yes or no for each device."""
    if values.dtype != np.bool_ or values.shape != (devices,):
        raise InputError("there must be a yes or no for every device.")
    return values


def worth_from(table: pd.DataFrame, about: Mapping[str, Any]) -> Worth:
    """What was measured, one row per device."""
    devices, told = about["devices"], about["worth"]
    if len(table) != len(devices) or not all(
        name in table.columns for name in _MEASURED
    ):
        raise InputError("there must be errors of every device.")
    named = (
        all(isinstance(name, str) for name in table.columns) and table.columns.is_unique
    )
    if not named or not all(
        pd.api.types.is_numeric_dtype(kind) for kind in table.dtypes
    ):
        raise InputError("errors must be numbers.")
    scale, classes = told["scale"], told["classes"]
    if (
        not _number(scale)
        or not math.isfinite(scale)
        or not scale > 0
        or not _count(classes)
    ):
        raise InputError("the scale of errors must be a number above 0.")
    if classes != len(about.get("classes", ())):
        raise InputError("errors must be of the classes of the run.")
    held, evidence = table["held"].to_numpy(), table["evidence"].to_numpy()
    evidence = np.nan_to_num(evidence)
    if not ((held >= 0) & np.isfinite(held)).all() or not (evidence >= 0).all():
        raise InputError("there must be a number of held-out rows for every device.")
    if "device" in table.columns:
        raise InputError("errors must not name devices.")
    table = table.copy()
    table.insert(0, "device", pd.Series(devices, dtype=object))
    return Worth(table, float(scale), classes)
