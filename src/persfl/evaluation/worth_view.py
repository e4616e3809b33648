"""What was measured, as a notebook shows it: the headline, and a table of all errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from persfl.checks import percent
from persfl.evaluation.headline import (
    expected_words,
    headline,
    lowest_arm,
    personalized_is,
)
from persfl.evaluation.html_tables import Scale, html_table, paragraphs, whisker
from persfl.evaluation.intervals import in_units

if TYPE_CHECKING:
    from collections.abc import Mapping

    from persfl.evaluation.verdicts import Worth


def worth_html(worth: Worth) -> str:
    """HTML without a file beside it."""
    arms = worth.summary()
    ends = [arm[end] for arm in arms for end in ("low", "high") if arm[end] is not None]
    scale = Scale(min([0.0, *ends]), max([0.0, *ends]))
    lowest = [arm["key"] for arm in arms].index(lowest_arm(worth))
    own_units = "mistakes" if worth.classes else "off by"
    head = ["held-out error of", "mean", "median", own_units]
    head += ["removed by personalizing", "95 % interval", "personalized is"]
    rows = [_cells(arm, scale) for arm in arms]
    more = expected_words(worth)
    said = [*headline(worth).sentences, *([more] if more else [])]
    return paragraphs(said) + html_table(head, rows, marked=lowest)


def _cells(arm: Mapping[str, Any], scale: Scale) -> list[str]:
    own = percent(arm["mistakes"]) if "mistakes" in arm else in_units(arm["off_by"])
    cells = [arm["name"], f"{arm['error']:.3g}", f"{arm['median']:.3g}", own]
    if arm["gain"] is None:
        return [*cells, "", "", ""]
    drawn = whisker(arm["gain"], arm["low"], arm["high"], scale)
    between = f"{percent(arm['low'])} to {percent(arm['high'])}"
    return [*cells, drawn, between, personalized_is(arm["says"])]
