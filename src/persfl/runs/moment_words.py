"""What rows held back share across devices, as plain words and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from persfl.errors import InputError
from persfl.evaluation.shared_moments import PARTS, SharedMoments

if TYPE_CHECKING:
    from persfl.evaluation.verdicts import Worth

_MOST = 1e300  # an error above overflows where it is added up


def moments_to(found: SharedMoments) -> dict[str, Any]:
    """What moments add to errors, per arm."""
    errors = {arm: error.tolist() for arm, error in found.errors.items()}
    return {"ahead": bool(found.ahead), "errors": errors}


def moments_from(words: Mapping[str, Any], arms: Sequence[str]) -> SharedMoments:
    """The inverse, for these arms.

    >>> told = {"ahead": True, "errors": {"own": [0.5, 1.5]}}
    >>> moments_to(moments_from(told, ["own"])) == told
    True
    """
    if not isinstance(words, dict) or set(words) != {"ahead", "errors"}:
        raise InputError("what moments add to errors must be numbers for each arm.")
    errors = words["errors"]
    named = isinstance(errors, dict) and set(errors) == set(arms)
    if not named or type(words["ahead"]) is not bool:
        raise InputError("what moments add to errors must name the arms.")
    told = list(errors.values())
    sized = all(map(_are_errors, told)) and len(set(map(len, told))) == 1
    if not sized:
        raise InputError(f"moments must be 1 to {PARTS} errors of each arm.")
    return SharedMoments(
        {arm: np.array(error, dtype=np.float64) for arm, error in errors.items()},
        words["ahead"],
    )


def with_moments(worth: Worth, words: Mapping[str, Any]) -> Worth:
    """With what its words say of moments, if they do."""
    if "moments" not in words:
        return worth
    return replace(worth, moments=moments_from(words["moments"], worth.arms))


def _are_errors(values: object) -> bool:
    if not isinstance(values, list) or not 1 <= len(values) <= PARTS:
        return False
    return all(type(value) in (int, float) and 0 <= value < _MOST for value in values)
