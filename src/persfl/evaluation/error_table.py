"""Errors of all ways that were judged, as the lines of a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from persfl.evaluation.headline import personalized_is
from persfl.evaluation.intervals import percent

Lines = list[tuple[str, ...]]


def error_lines(arms: Sequence[Mapping[str, Any]], *, ahead: bool = False) -> Lines:
    """The names of columns, then a line for each entry of `Worth.summary`; `ahead`: intervals
    are for rows to come.

    >>> own = {"key": "own", "name": "own rows only", "error": 0.5, "median": 0.4}
    >>> own |= {"off_by": 2.0, "gain": 0.2, "low": 0.1, "high": 0.3, "says": "helps"}
    >>> error_lines([own])[1]
    ('own rows only (lowest)', '0.5000', '0.4000', '2', '20 % (10 % to 30 %): better')
    """
    units = "mistakes" if "mistakes" in arms[0] else "off by"
    to_come = " for rows to come" if ahead else ""
    gains = f"personalized is better by (95 % interval{to_come})"
    lines: Lines = [("held-out error of", "mean", "median", units, gains)]
    # personalized models where they tie
    known = [arm for arm in arms if arm["error"] is not None]
    ranked = sorted(known, key=lambda arm: (arm["error"], arm["key"] != "personal"))
    lowest = ranked[0]["key"] if ranked else ""
    for arm in arms:
        mark = " (lowest)" if arm["key"] == lowest else ""
        errors = _shown(arm["error"]), _shown(arm["median"])
        lines.append((f"{arm['name']}{mark}", *errors, _in_units(arm), _beside(arm)))
    return lines


def _shown(error: float | None) -> str:
    """Nothing where no device could be measured, which a file keeps as null."""
    return "" if error is None else f"{error:.4f}"


def _in_units(arm: Mapping[str, Any]) -> str:
    """The share of wrong classes, or how far numbers are off in the label's units."""
    if "mistakes" in arm:
        return f"{arm['mistakes']:.3f}"
    return "" if arm["off_by"] is None else f"{arm['off_by']:.4g}"


def _beside(arm: Mapping[str, Any]) -> str:
    """What the personalized models are beside an arm: by how much, and whether that is clear."""
    told = [arm[name] for name in ("gain", "low", "high")]
    if any(each is None or math.isnan(each) for each in told):
        return ""
    gain, low, high = map(percent, told)
    return f"{gain} ({low} to {high}): {personalized_is(arm['says'])}"
