"""Errors of all ways that were judged, as the lines of a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from persfl.checks import percent
from persfl.evaluation.headline import personalized_is
from persfl.evaluation.intervals import in_units

Lines = list[tuple[str, ...]]
# what errors are
OF_NUMBERS = "mean squared error as a share of the label's variance"
OF_CLASSES = "Brier score (squared error of the chances of all classes)"


def error_lines(arms: Sequence[Mapping[str, Any]], *, ahead: bool = False) -> Lines:
    """The names of columns, then a line for each entry of `Worth.summary`; `ahead`: intervals
    are for rows to come.

    >>> own = {"key": "own", "name": "own rows only", "error": 0.5, "median": 0.4}
    >>> own |= {"off_by": 2.0, "gain": 0.2, "low": 0.1, "high": 0.3, "says": "helps"}
    >>> error_lines([own])[1]
    ('own rows only (lowest)', '0.5000', '0.4000', '2', '20 % (10 % to 30 %): better')
    """
    classes = all("mistakes" in arm for arm in arms)
    to_come = " for rows to come" if ahead else ""
    gains = f"personalized is better by (95 % interval{to_come})"
    units = "mistakes" if classes else "off by"
    lines: Lines = [("held-out error of", "mean", "median", units, gains)]
    known = [arm for arm in arms if arm["error"] is not None]
    # personalized models where they tie
    known.sort(key=lambda arm: (arm["error"], arm["key"] != "personal"))
    for arm in arms:
        mark = " (lowest)" if arm in known[:1] else ""
        errors = _shown(arm["error"], ".4f"), _shown(arm["median"], ".4f")
        own = _shown(arm["mistakes"], ".3f") if classes else _off_by(arm["off_by"])
        lines.append((f"{arm['name']}{mark}", *errors, own, _beside(arm)))
    return lines


def _shown(number: float | None, form: str) -> str:
    """A number, or nothing where nothing was measured."""
    return "" if number is None else format(number, form)


def _off_by(error: float | None) -> str:
    return "" if error is None else in_units(error)


def _beside(arm: Mapping[str, Any]) -> str:
    """What the personalized models are beside an arm: by how much, and whether that is clear."""
    told = [arm[name] for name in ("gain", "low", "high")]
    if any(each is None or math.isnan(each) for each in told):
        return ""
    gain, low, high = map(percent, told)
    return f"{gain} ({low} to {high}): {personalized_is(arm['says'])}"
