"""What a run over shards was asked, and what came out, as its folder tells it: looked at first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from persfl.checks import real, whole
from persfl.errors import InputError
from persfl.evaluation.intervals import NOT_MEASURED, Verdict

_TEXTS = ("device", "label", "method")
_COUNTS = ("devices", "rows")
_ERRORS = ("error", "median", "off_by", "gain", "low", "high")


def asked_from(told: dict[str, Any]) -> dict[str, Any]:
    """The same, if it is what a fit is asked.

    >>> asked_from({"device": "id", "label": 3})
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: label must be a text. Got 3.
    """
    for name in _TEXTS:
        _text(name, told[name])
    for name in _COUNTS:
        whole(name, told[name], least=0)
    whole("seed", told["seed"], least=-(2**63))
    real("holdout", told["holdout"], least=0.0, most=1.0)
    features = told["features"]
    if not isinstance(features, list) or len(set(features)) < len(features):
        raise InputError("features must be a list of different columns.")
    for name in features:
        _text("a feature", name)
    return told


def facts_from(told: dict[str, Any]) -> dict[str, Any]:
    """The same, if it is what comes out; nothing until a run is over."""
    if not told:
        return told
    for name, share in told["offers"]:
        _text("an offer", name)
        real("its share", share, least=0.0, most=1.0 + 1e-6)
    whole("panel", told["panel"], least=0)
    if told["worth"] is not None:
        _check_worth(told["worth"])
    return told


def _check_worth(told: Mapping[str, Any]) -> None:
    """Stop where it is no comparison with own rows, or has a number that is none."""
    verdict = dict(told["verdict"])
    says = verdict.pop("says")
    _text("says", says)
    whole("devices", verdict.pop("devices"), least=0)
    for name, value in verdict.items():
        _number(name, value)
    found = Verdict(says=says, devices=0, **verdict)
    if says != NOT_MEASURED.says:
        heads = (found.better, found.worse) if "better" in verdict else ()
        for value in (found.gain, found.low, found.high, *heads):
            real("the share of a verdict", value, least=-1e300, most=1e300)
    whole("held", told["held"], least=0)
    if not told["arms"]:
        raise InputError("arms must be the ways that were judged. Got none.")
    for arm in told["arms"]:
        _text("a way", arm["key"])
        _text("its name", arm["name"])
        for name in _ERRORS:
            _number(f"its {name}", arm[name])
        _number("its mistakes", arm.get("mistakes"))
        if arm["says"] is not None:
            _text("what it says", arm["says"])


def _number(name: str, value: object) -> None:
    if value is not None:
        real(name, value, least=-1e300, most=1e300)


def _text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise InputError(f"{name} must be a text. Got {value!r}.")
