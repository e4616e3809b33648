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

from persfl.evaluation.split import taken
from persfl.fitting.row_columns import as_dates, keys_of

if TYPE_CHECKING:
    from persfl.devices import Devices
    from persfl.types import Array, IntArray

SAMPLE = 1000  # texts of a column that are looked at
MOSTLY = 0.95  # of them that must read as dates
# standard deviations above what independent devices have; a device more or less is no evidence
CLEARLY = 5.0
FEWEST = 5  # keys that several devices share
ENOUGH = 1000  # devices that are looked at
_CLOCK = re.compile(
    "(date|day|time|hour|minute|second|week|month|quarter|year|yr|period)"
    "|timestamp|datetime|epoch"
)
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


class DateColumn(NamedTuple):
    """A column that may be time: its name, a number per row that is equal where it is, and whether
    it looks like time by itself.
    """

    name: str
    keys: IntArray
    sure: bool


def date_columns(
    frame: pd.DataFrame | None, aside: pd.DataFrame | None, rows: Devices, at: IntArray
) -> tuple[DateColumn, ...]:
    """Of the features and of what lies aside; `at` is where each row of the devices stood."""
    found = []
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
            found.append(DateColumn(str(name), keys_of(values, str(name)), sure))
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
    some = some[some.str.contains(r"\d[-/:.]\d", regex=True)]
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


def hangs_together(keys: IntArray, rows: Devices, left: Array) -> float:
    """How far rows of equal keys are off in the same direction at different devices, in standard
    deviations of what devices have that know nothing of each other.

    `left` (rows,) or (rows, classes) is what one model for all leaves of the labels. Over pairs of
    devices the products of what is left at equal keys are added up. A device's leftovers may go up
    and down as they like: to know what chance does, each device's sign is drawn anew, which leaves
    its own course as it is.

    >>> from persfl.devices import Devices
    >>> draw = np.random.default_rng(0)
    >>> rows = Devices.of([(np.zeros((9, 1)), np.zeros(9))] * 20, quiet=True)
    >>> keys = np.tile(np.arange(9), 20)
    >>> shock = draw.normal(size=9)[keys]
    >>> own = draw.normal(size=180)
    >>> hangs_together(keys, rows, own) < 3, hangs_together(keys, rows, own + shock) > 5
    (True, True)
    """
    owner = rows.owner
    _, key = np.unique(keys, return_inverse=True)
    many = int(key.max()) + 1
    left = left.reshape(len(left), -1)
    pair, cell = np.unique(owner * many + key, return_inverse=True)
    shared = np.bincount(pair % many, minlength=many)[pair % many] > 1
    if len(np.unique((pair % many)[shared])) < FEWEST:
        return 0.0
    weight = np.bincount(cell, weights=rows.weight)
    level = np.maximum(
        np.bincount(owner, weights=rows.weight, minlength=len(rows)), 1e-300
    )
    sums = 0.0
    spread = 0.0
    for column in left.T:
        mean = (
            np.bincount(owner, weights=rows.weight * column, minlength=len(rows))
            / level
        )
        away = rows.weight * (column - mean[owner])
        each = np.bincount(cell, weights=away) / np.maximum(weight, 1e-300) * shared
        total, chance = _products(pair // many, pair % many, each, len(rows), many)
        sums += total
        # what classes leave goes together: their deviations are added, not their variances
        spread += np.sqrt(max(chance, 0.0))
    return float(sums / spread) if spread > 1e-9 else 0.0


def _products(
    device: IntArray, key: IntArray, each: Array, devices: int, keys: int
) -> tuple[float, float]:
    """Products over ordered pairs of different devices at equal keys: their sum, and its variance
    where every device's sign is drawn.

    A device's size is 1, so that loud ones say no more than others.
    """
    from scipy.sparse import csr_array  # takes long to load

    size = np.sqrt(np.bincount(device, weights=each**2, minlength=devices))
    each = each / np.maximum(size, 1e-300)[device]
    table = csr_array((each, (device, key)), shape=(devices, keys))
    within = float((each**2).sum())
    total = float((np.asarray(table.sum(axis=0)) ** 2).sum()) - within
    # of all products between devices: 2 * sum of squares, from the smaller of the two tables
    small = table.T @ table if keys < devices else table @ table.T
    own = np.bincount(device, weights=each**2, minlength=devices)
    return total, 2.0 * (float((small.multiply(small)).sum()) - float((own**2).sum()))


def pooled_leftovers(rows: Devices, classes: int) -> Array:
    """What one linear model for all rows leaves of the labels, or of each class's indicator."""
    wide = rows.X - rows.X.mean(axis=0)
    spread = wide.std(axis=0)
    X = np.column_stack([wide / np.where(spread > 0, spread, 1.0), np.ones(len(wide))])
    y = rows.y[:, None]
    if classes:
        y = (y == np.arange(classes)) + 0.0
    root = np.sqrt(rows.weight)[:, None]
    gram = (X * root).T @ (X * root)
    gram[np.diag_indices_from(gram)] += 1e-6 * max(float(rows.weight.sum()), 1e-300)
    return np.asarray(y - X @ np.linalg.solve(gram, (X * root**2).T @ y))


def date_notes(dates: Sequence[DateColumn], rows: Devices, classes: int) -> list[str]:
    """What to say of columns that look like time, where nobody said anything of them."""
    if not dates or len(rows) < 2:
        return []
    which = np.arange(len(rows)) % -(-len(rows) // ENOUGH) == 0
    some = taken(rows, which)
    left = pooled_leftovers(some, classes)
    strong = [
        (hangs_together(one.keys[which[rows.owner]], some, left), one) for one in dates
    ]
    most, column = max(strong, key=lambda pair: pair[0])
    if most > CLEARLY:
        name = column.name
        return [
            f"Rows with the same {name!r} are off in the same direction at different devices, far"
            " more than by chance: rows held back are easier to predict than those of a new"
            f" {name!r} will be. Set blocks={name!r}, or time={name!r} if later rows are to be"
            f" predicted (command line: --blocks {name}, --time {name})."
        ]
    sure = [one.name for one in dates if one.sure]
    if not sure:
        return []
    name = sure[0]
    return [
        f"Column {name!r} looks like time, and rows held back lie among those learned from. If"
        f" later rows are to be predicted, set time={name!r}; if rows of the same {name!r} hang"
        f" together, blocks={name!r} (command line: --time {name}, --blocks {name})."
    ]
