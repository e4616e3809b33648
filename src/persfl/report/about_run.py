"""What a report is about, in a few lines at its top: table, rows, features, method, seed, date."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

from persfl.checks import many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from persfl.fitting.fitted import Fitted
    from persfl.types import IntArray

MOST_FEATURES = 12  # named, before "and so many more"
Facts = list[tuple[str, str]]


def about_run(
    fitted: Fitted, device: str, label: str, *, table: str = "", date: str = ""
) -> Facts:
    """Names and values, in the order in which a reader asks for them."""
    rows = fitted.rows
    held = f"{int(rows.sum()):,} of {counted_devices(len(rows), device)}, {rows_each(rows)}"
    facts = [
        ("Table", table),
        ("Rows", held),
        ("Device", device),
        ("Label", label),
        ("Features", _some_names(fitted.schema.inputs)),
        ("Method", fitted.ran),
        ("Seed", str(fitted.settings.seed)),
        ("Date", date),
    ]
    return [(name, value) for name, value in facts if value]


def counted_devices(n: int, column: str) -> str:
    """How many devices there are, in the column's own word where it has one.

    >>> (
    ...     counted_devices(26, "Subject"),
    ...     counted_devices(46, "city"),
    ...     counted_devices(1, "class"),
    ... )
    ('26 subjects', '46 cities', '1 class')
    >>> [counted_devices(3, name) for name in ("boxes", "station_id", "ID", "countyid")]
    ['3 boxes', '3 devices', '3 devices', '3 devices']
    """
    if not re.fullmatch("[A-Za-z]{3,24}", column) or re.search("(?i)...id$", column):
        return many(n, "device")
    word = column.lower()
    return f"{n:,} {word if n == 1 else _plural(word)}"


def _plural(word: str) -> str:
    """More than one of a word; one that looks like several stays as it is."""
    if re.search("(ss|x|ch|sh)$", word):
        return word + "es"
    if word.endswith("s"):
        return word
    return word[:-1] + "ies" if re.search("[^aeiou]y$", word) else word + "s"


def rows_each(rows: IntArray) -> str:
    """How many rows a device has, from the fewest to the most.

    >>> import numpy as np
    >>> rows_each(np.array([8, 8])), rows_each(np.array([3, 1200]))
    ('8 a device', '3 to 1,200 a device')
    """
    least = int(rows.min())
    most = int(rows.max())
    return f"{least:,} a device" if least == most else f"{least:,} to {most:,} a device"


def _some_names(names: Sequence[str]) -> str:
    """The first names, and how many more there are.

    >>> _some_names([f"x{i}" for i in range(14)])[-10:]
    'and 2 more'
    """
    shown = ", ".join(names[:MOST_FEATURES])
    more = len(names) - MOST_FEATURES
    return f"{shown} and {more} more" if more > 0 else shown


def about_html(facts: Sequence[tuple[str, str]]) -> str:
    """A list of terms; whatever a name holds is text.

    >>> about_html([("Table", "<b>.csv")])
    '<dl class="about"><div><dt>Table</dt><dd>&lt;b&gt;.csv</dd></div></dl>'
    """
    if not facts:
        return ""
    rows = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in facts
    )
    return f'<dl class="about">{rows}</dl>'
