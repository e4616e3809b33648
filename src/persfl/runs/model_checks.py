"""What the words and numbers of a run folder must be, before anything is made of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sized
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from persfl.checks import some
from persfl.errors import InputError
from persfl.evaluation.verdicts import Worth
from persfl.fitting.setup import FitSettings
from persfl.formats import reading
from persfl.learners.storage.named_arrays import has_form
from persfl.methods import METHODS
from persfl.runs.moment_words import with_moments
from persfl.runs.trust_notes import check_notes
from persfl.trust import Trust
from persfl.units import KINDS

if TYPE_CHECKING:
    from persfl.learners.storage.named_arrays import AnyArray, Arrays
    from persfl.runs.run_folder import Folder
    from persfl.types import Array

# settings of a method that are functions: those of persfl's own are known by their names
PARTS = {
    "adopter": ("Best", "BestOrStay", "TopK", "Weighted"),
    "sampler": ("Nobody", "Thompson", "UCB", "Uniform"),
}
MOST_CLASSES = 10_000
_LARGEST = 1e140  # error in the label's variance: its square is a number, too
_MEASURED = ("held", "evidence", "spread", "error_own", "error_personal")

# Words: JSON knows six types, and what is read is of exactly one of them

Check = Callable[[Any], bool]


def _of(*kinds: type) -> Check:
    return lambda value: type(value) in kinds


_is_text = _of(str)
_is_truth = _of(bool)
_is_object = _of(dict)
_is_number = _of(int, float)
is_plain = _of(type(None), bool, int, float, str)


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_worth(value: object) -> bool:
    return isinstance(value, dict) and set(value) - {"moments"} == {"scale", "classes"}


def _is_letter(value: object) -> bool:
    return isinstance(value, str) and len(value) == 1


def _are(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _maybe(check: Check) -> Check:
    return lambda value: value is None or check(value)


_are_texts = _are(_is_text)


def _is_id(value: object) -> bool:
    """A text, or a number that a table can hold."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return isinstance(value, str) or (
        isinstance(value, float) and not math.isnan(value)
    )


def _are_ids(value: object) -> bool:
    """Different texts or numbers, at least one."""
    if not isinstance(value, list) or not value or not all(map(_is_id, value)):
        return False
    return len(set(value)) == len(value)


def _are_known(names: Collection[str], method: object) -> bool:
    """Whether these are settings of a fit, or of a method: of this one, or else of any there is,
    since folders of older versions have those of others too.
    """
    beside = {"device", "impute", "method", "random_state"}
    of_fits = {field.name for field in fields(FitSettings)}
    apart = {"public", "seed", *PARTS}
    rest = set(names) - (beside | of_fits) | (set(names) & apart)
    if isinstance(method, str) and method in METHODS:
        rest -= set(METHODS[method]().get_params()) - apart
    if not rest:
        return True
    every = {name for kind in METHODS.values() for name in kind().get_params()}
    return rest <= every - apart


def _are_settings(value: object) -> bool:
    if not isinstance(value, dict) or not _are_known(value, value.get("method")):
        return False
    columns = [value.get(key) for key in ("device", "blocks", "time")]
    return all(map(is_plain, value.values())) and all(map(_maybe(_is_text), columns))


def _is_described(value: object) -> bool:
    return isinstance(value, dict) and _is_text(value.get("kind"))


def _is_group(value: object) -> bool:
    """A device id and its group."""
    if not isinstance(value, list) or len(value) != 2:
        return False
    return is_plain(value[0]) and _is_text(value[1])


_WANTED: dict[str, Check] = {
    "kind": lambda value: value in ("PersonalizedRegressor", "PersonalizedClassifier"),
    "settings": _are_settings,
    "adopter": _maybe(_is_described),
    "devices": _are_ids,
    "learner": _is_described,
    "own_learner": _is_truth,
    "units": lambda value: value in KINDS,
    "step_size": _is_number,
    "rounds": _is_count,
    "notes": _are_texts,
    "features": lambda value: _is_count(value) and value >= 1,
    "names": _maybe(_are_texts),
    "preparation": _maybe(_is_object),
}
_POSSIBLE: dict[str, Check] = {
    "method": lambda value: value in (*METHODS, "auto"),
    "classes": _are_ids,
    "pooled": lambda value: value in KINDS,
    "worth": _is_worth,
    "removal": _is_object,
    "sampler": _maybe(_is_described),
}
_SPEC: dict[str, Check] = {
    "device": _is_text,
    "label": _is_text,
    "features": lambda value: _are_texts(value) and bool(value),
    "separator": _maybe(_is_letter),
    "decimal": _is_letter,
    "thousands": _maybe(_is_letter),
    "groups": _maybe(_are(_is_group)),
}


def _refuse_unusable(words: Mapping[str, Any], checks: Mapping[str, Check]) -> None:
    """Stop where values are not what they must be; absent ones are None."""
    wrong = [name for name, good in checks.items() if not good(words.get(name))]
    if wrong:
        raise InputError(f"it has an unusable {some(wrong)}.")


def check_words(words: object) -> None:
    """Stop where `model.json` is not what it must be."""
    if not isinstance(words, dict):
        raise InputError("it must be an object of names and values.")
    absent = [name for name in _WANTED if name not in words]
    if absent:
        raise InputError(f"it has no {some(absent)}.")
    method = words.get("method")
    if isinstance(method, str) and method not in (*METHODS, "auto"):
        raise InputError(
            f"it is of the method {method[:80]!r}, which is not in persfl.methods.METHODS."
        )
    more = {name: good for name, good in _POSSIBLE.items() if name in words}
    _refuse_unusable(words, _WANTED | more)
    if (words["kind"] == "PersonalizedClassifier") != ("classes" in words):
        raise InputError("a classifier must have classes, and a regressor none.")
    check_classes(words.get("classes", ()))
    if words["names"] is not None and len(words["names"]) != words["features"]:
        raise InputError("there must be a name for every feature.")


def check_classes(classes: Sized) -> None:
    """Stop where there are more classes than anybody predicts: every row has a chance of each."""
    if len(classes) > MOST_CLASSES:
        raise InputError(
            f"a run folder keeps models of at most {MOST_CLASSES:,} classes. Got"
            f" {len(classes):,}."
        )


def spec_of(folder: Folder) -> Mapping[str, Any]:
    """What a run was asked, if it says what predictions and reports need."""
    spec: Mapping[str, Any] = folder.spec
    with reading(folder.path / "spec.json"):
        check_spec(spec)
    return spec


def check_spec(spec: Mapping[str, Any]) -> None:
    """Stop where `spec.json` lacks what predicting and reporting take from it."""
    _refuse_unusable(spec, _SPEC)


# Numbers


def trust_from(arrays: Arrays, devices: int) -> Trust:
    """Trust among this many devices, of counts that are counts."""
    trust = Trust.from_arrays(arrays)
    targets = trust.targets
    pairs = trust.pairs
    known = targets.ndim == 1 and len(np.unique(targets)) == len(targets)
    if trust.n != devices or not known or ((targets < 0) | (targets >= devices)).any():
        raise InputError("trust must be about the devices of the run.")
    counts = np.stack([pairs.asked, pairs.answered, pairs.adopted])
    if not ((counts >= 0) & (counts < 2**53)).all():
        raise InputError("how often devices were asked must be counts.")
    check_notes(trust.notes, len(targets))
    return trust


def losses_from(losses: AnyArray, devices: int) -> Array:
    """Own losses by round and device."""
    if not has_form({"losses": losses}, {"losses": "f R D"}, D=devices):
        raise InputError("losses must be numbers for every round and device.")
    return losses


def counts_from(rows: AnyArray, devices: int) -> AnyArray:
    """How many rows each device has."""
    if not has_form({"rows": rows}, {"rows": "i D"}, D=devices) or (rows < 0).any():
        raise InputError("there must be a number of rows for every device.")
    return rows


def truths_from(values: AnyArray, devices: int) -> AnyArray:
    """Yes or no for each device."""
    if not has_form({"values": values}, {"values": "b D"}, D=devices):
        raise InputError("there must be a yes or no for every device.")
    return values


def _refuse_odd_errors(name: str, values: Array, scale: float) -> None:
    """Stop where an error, or what it falls by, is no number; NaN is where nothing was measured."""
    size = np.abs(values[~np.isnan(values)])
    most = 1.0 + 1e-9 if name.startswith("mistakes_") else min(_LARGEST * scale, 1e300)
    below = not name.startswith("fall_") and (values < 0).any()
    nothing = not len(size) and name.startswith("error_")
    if below or nothing or not (size <= most).all():
        raise InputError(f"{name} must be errors that were measured.")


def worth_from(table: pd.DataFrame, words: Mapping[str, Any]) -> Worth:
    """What was measured, one row per device."""
    devices = words["devices"]
    columns = table.columns
    if len(table) != len(devices) or not set(_MEASURED) <= set(columns):
        raise InputError("there must be errors of every device.")
    named = all(map(_is_text, columns)) and columns.is_unique
    if not named or not all(map(pd.api.types.is_numeric_dtype, table.dtypes)):
        raise InputError("errors must be numbers.")
    scale = words["worth"]["scale"]
    classes = words["worth"]["classes"]
    if not _is_number(scale) or not 0 < scale < math.inf or not _is_count(classes):
        raise InputError("the scale of errors must be a number above 0.")
    if classes != len(words.get("classes", ())):
        raise InputError("errors must be of the classes of the run.")
    arms = [name.removeprefix("error_") for name in columns if name[:6] == "error_"]
    if classes and not {f"mistakes_{arm}" for arm in arms} <= set(columns):
        raise InputError("there must be mistakes of every way whose errors there are.")
    held = table["held"].to_numpy()
    evidence = table["evidence"].to_numpy()
    counted = (held >= 0) & np.isfinite(held) & (np.nan_to_num(evidence) >= 0)
    if not counted.all():
        raise InputError("there must be a number of held-out rows for every device.")
    if "device" in columns:
        raise InputError("errors must not name devices.")
    for name in columns:
        values = table[name].to_numpy(dtype=np.float64, na_value=np.nan)
        _refuse_odd_errors(name, values, scale)
    table = table.copy()
    table.insert(0, "device", pd.Series(devices, dtype=object))
    return with_moments(Worth(table, float(scale), classes), words["worth"])
