"""Columns that look like time, of which nobody said anything; and whether rows hang together there.

Rows drawn at random from a table that goes by dates lie among the rows that are learned from. What
they say of new dates is too good, and nobody would notice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from pandas.api import types as kinds

from persfl.checks import some
from persfl.evaluation.row_course import (
    CLEARLY,
    course_of,
    hangs_together,
    pooled_leftovers,
    some_devices,
)
from persfl.fitting.row_columns import as_dates, keys_of

if TYPE_CHECKING:
    from persfl.devices import Devices
    from persfl.evaluation.row_order import RowOrder
    from persfl.types import Array, IntArray

SAMPLE = 1000  # texts of a column that are looked at
MOSTLY = 0.95  # of them that must read as dates
LONGEST = 100  # letters of a date; engines of patterns may take the square of the time
_PARTED = r"\d[-/:.]\d|[A-Za-z]{3}.*\d{4}|\d{4}.*[A-Za-z]{3}"
_CLOCK = re.compile(
    "(date|day|time|hour|minute|second|week|month|quarter|year|yr|period)"
    "|timestamp|datetime|epoch"
)
_UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


class DateColumn(NamedTuple):
    """A column that may be time: its name, a number per row that is equal where it is, whether it
    looks like time by itself, and the columns that it needs to say when.
    """

    name: str
    keys: IntArray
    sure: bool
    beside: tuple[str, ...] = ()


def date_columns(
    frame: pd.DataFrame | None, aside: pd.DataFrame | None, rows: Devices, at: IntArray
) -> tuple[DateColumn, ...]:
    """Of the features and of what lies aside; `at` is where each row of the devices stood."""
    found = []
    names = [str(name) for name, _ in _columns(frame, aside)]
    for name, values in _columns(frame, aside):
        values = values.iloc[at]
        if _are_dates(values):
            sure = values.nunique() > 1
        elif _named_so(name) and kinds.is_numeric_dtype(values):
            if not _once_each(values.to_numpy(dtype=np.float64), rows):
                continue
            sure = _grows(values.to_numpy(dtype=np.float64), rows)
        else:
            continue
        if not values.isna().any():
            keys = keys_of(values, str(name))
            found.append(DateColumn(str(name), keys, sure, _coarser(str(name), names)))
    return tuple(found)


def _columns(*frames: pd.DataFrame | None) -> Iterator[tuple[object, pd.Series]]:
    seen = set()
    for frame in frames:
        for k, name in enumerate([] if frame is None else frame.columns):
            if frame is not None and name not in seen:
                seen.add(name)
                yield name, frame.iloc[:, k]


def _are_dates(values: pd.Series) -> bool:
    if kinds.is_datetime64_any_dtype(values) or isinstance(
        values.dtype, pd.PeriodDtype
    ):
        return True
    if kinds.is_numeric_dtype(values) or kinds.is_timedelta64_dtype(values):
        return False
    present = values.dropna()
    step = max(1, len(present) // SAMPLE)
    some = present.iloc[::step].iloc[:SAMPLE].astype(object).map(str)
    # 20240531 and 5 read as dates too, and are as likely codes
    some = some[some.str.len() <= LONGEST]
    some = some[some.str.contains(_PARTED, regex=True)]
    if len(some) < MOSTLY * min(len(present[::step]), SAMPLE) or not len(some):
        return False
    return bool(as_dates(some).notna().mean() >= MOSTLY)


def _named_so(name: object) -> bool:
    """Whether one of the words of a name is one of time.

    >>> [_named_so(name) for name in ("Year", "pickup_time", "saleDate", "daylight", 3)]
    [True, True, True, False, False]
    """
    words = _WORDS.findall(name) if isinstance(name, str) else []
    return any(_CLOCK.fullmatch(word.lower()) for word in words)


def _coarser(name: str, names: Sequence[str]) -> tuple[str, ...]:
    """The columns of longer units: the 27th is a time only beside a month and a year.

    >>> _coarser("day", ["storm", "year", "month", "day", "hour"])
    ('year', 'month')
    """
    own, of = _unit(name)
    found = []
    for other in names:
        unit, its = _unit(other)
        if its == of and unit < own < len(_UNITS):
            found.append((unit, other))
    return tuple(other for _, other in sorted(found))


def _unit(name: str) -> tuple[int, list[str]]:
    """Which of the units of time a name has, by its place among all (their number where it has
    none), and its other words.

    >>> _unit("arrival_month")
    (2, ['arrival'])
    """
    words = [word.lower() for word in _WORDS.findall(name)]
    units = [_UNITS.index(word) for word in words if word in _UNITS]
    return min(units, default=len(_UNITS)), [w for w in words if w not in _UNITS]


def _grows(values: Array, rows: Devices) -> bool:
    """Whether it never falls, and somewhere rises, within most devices that have three rows."""
    step = np.diff(values)
    inside = rows.owner[1:] == rows.owner[:-1]
    owner = rows.owner[1:][inside]
    falls = np.bincount(owner[~(step[inside] >= 0)], minlength=len(rows))
    rises = np.bincount(owner[step[inside] > 0], minlength=len(rows))
    enough = rows.counts >= 3
    return bool(enough.any() and ((falls == 0) & (rises > 0))[enough].mean() > 0.5)


def _once_each(values: Array, rows: Devices) -> bool:
    """Whether it goes on by itself or tells the rows of most devices apart, as a date does and a
    day of the week does not.
    """
    pairs = pd.DataFrame({"owner": rows.owner, "value": values})
    different = pairs.groupby("owner")["value"].nunique().to_numpy()
    enough = rows.counts[rows.counts > 0] >= 3
    apart = different == rows.counts[rows.counts > 0]
    return _grows(values, rows) or bool(enough.any() and apart[enough].mean() > 0.5)


def date_notes(
    dates: Sequence[DateColumn],
    rows: Devices,
    classes: int,
    order: RowOrder | None = None,
) -> list[str]:
    """What to say of columns that look like time, and of rows that go on from one to the next,
    where nobody said anything of them.
    """
    if len(rows) < 2:
        return []
    said = _column_notes(dates, rows, classes) if dates else []
    silent = order is not None and order.random and not classes
    return said or (_course_notes(rows) if silent else [])


def _column_notes(
    dates: Sequence[DateColumn], rows: Devices, classes: int
) -> list[str]:
    part, which = some_devices(rows)
    left = pooled_leftovers(part, classes)
    strong = [(hangs_together(one.keys[which], part, left), one) for one in dates]
    most, column = max(strong, key=lambda pair: pair[0])
    if most > CLEARLY:
        name = column.name
        return [
            f"Rows with the same {name!r} are off in the same direction at different devices, far"
            " more than by chance: rows that lie among those learned from are easier to predict"
            f" than those of a new {name!r} will be. {_what_to_set(column)}"
        ]
    sure = [one.name for one in dates if one.sure and not one.beside]
    if not sure:
        return []
    name = sure[0]
    return [
        f"Column {name!r} looks like time, and rows held back lie among those learned from. If"
        f" later rows are to be predicted, set time={name!r}; if rows of the same {name!r} hang"
        f" together, blocks={name!r} (command line: --time {name}, --blocks {name})."
    ]


def _what_to_set(column: DateColumn) -> str:
    """The words that hide such rows together."""
    name = column.name
    if not column.beside:
        return (
            f"Set blocks={name!r}, or time={name!r} if later rows are to be predicted (command"
            f" line: --blocks {name}, --time {name})."
        )
    parts = some([*column.beside, name], 5)
    return (
        f"Set blocks={name!r} (command line: --blocks {name}). If later rows are to be predicted,"
        f" make one column of dates from {parts}, and name it: time=... (command line: --time)."
    )


def _course_notes(rows: Devices) -> list[str]:
    """Of the order in which rows stand."""
    course = course_of(rows)
    if max(course.next, course.own) > CLEARLY:
        alike = "Rows that follow each other at a device are alike"
    elif course.together > CLEARLY:
        alike = "The first, the second, ... rows of different devices are alike"
    else:
        return []
    return [
        f"{alike}, far more than by chance: rows held back lie among those learned from, and are"
        " easier to predict than those that come next. If later rows are to be predicted, set"
        " ordered=True, or name the column of dates with time= or blocks= (command line:"
        " --ordered, --time, --blocks)."
    ]
