"""Searches and cross-validations of scikit-learn hand `devices` to fits and leave it out when they
score. Every score would be nan, so they are stopped before the first fit, with the line to type.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from sklearn import get_config
from sklearn.utils import Bunch

from persfl.errors import InputError

# the packages whose functions clone an estimator for every fold
FOLDS = "sklearn.model_selection."


def refuse_lost_devices() -> None:
    """Stop the search or cross-validation that is cloning an estimator, if it was handed `devices`
    one per row and will predict without them.

    scikit-learn has no place where an estimator may look at this, so its frame is read. Where it
    has no such frame or another shape, nothing is said here, and scores say it later.
    """
    routed = _routed()
    if routed is None:
        return
    fits = routed.get("estimator", {}).get("fit", {})
    named = [
        name
        for name, value in fits.items()
        if name.split("__")[-1] == "devices" and not isinstance(value, str | None)
    ]
    if not named or any("devices" in words for words in _predicting(routed)):
        return
    column = getattr(fits[named[0]], "name", None)
    raise InputError(_sentence(named[0], column, routed))


def _routed() -> Bunch | None:
    """What goes to fits and to scores, in the search or cross-validation that is running."""
    frame = inspect.currentframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(FOLDS):
            routed = frame.f_locals.get("routed_params")
            if isinstance(routed, Bunch):
                return routed
        frame = frame.f_back
    return None


def _predicting(routed: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What is handed in where rows are predicted."""
    yield routed.get("scorer", {}).get("score", {})
    for method, words in routed.get("estimator", {}).items():
        if method.startswith("predict"):
            yield words


def _sentence(name: str, column: object, routed: Mapping[str, Any]) -> str:
    said = repr(column) if isinstance(column, str) else "'COLUMN'"
    named = f"keep the column in X and hand in its name, devices={said}"
    if not get_config()["enable_metadata_routing"]:
        first = "sklearn.set_config(enable_metadata_routing=True) first"
        if name == "devices":
            advice = f"{named}, or write {first}"
        else:  # a step of a pipeline, where another step may not take the column
            advice = f"write {first}, and hand in devices= instead of {name}="
        return f"scikit-learn hands {name}= to fits only, and predicts without it: {advice}."
    if "scorer" in routed:
        return (
            "a scorer named by scoring= predicts without devices: leave scoring= out, or"
            f" {named}."
        )
    return f"this function of scikit-learn predicts without devices: {named}."
