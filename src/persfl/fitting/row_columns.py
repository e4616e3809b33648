"""Columns that say what repeats: which rows share a key, and when each row was."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from pandas.api import types as kinds

from persfl.checks import real, some
from persfl.column_checks import MONTH
from persfl.encoding import as_frame, is_table
from persfl.errors import InputError
from persfl.evaluation.row_order import RowOrder

if TYPE_CHECKING:
    from persfl.types import Array, IntArray

# 31 May 2024, May 31, 2024, 2024-May-31 or May 2024, once parted by blanks
_MONTH_NAMED = ("%d %b %Y", "%b %d %Y", "%Y %b %d", "%b %Y")
# 31.5.2024 or 5/31/2024 12:30
_DAY = r"(?P<day>\d{1,2}[./]\d{1,2}[./]\d{4})"
_DAY_AND_TIME = rf"^{_DAY}(?:[ T]+(?P<time>\d{{1,2}}:\d{{2}}(?::\d{{2}})?))?$"

Key = str | ArrayLike | None  # a column's name, or one entry per row
Span = float | str | None  # how much of a clock


@dataclass(frozen=True, eq=False)
class OrderWords:
    """What somebody said of the order of their rows; `persfl.PersonalizedRegressor` says what each
    word means.
    """

    ordered: bool = False
    blocks: Key = None
    time: Key = None
    gap: Span = None
    horizon: Span = None

    @property
    def names(self) -> list[str]:
        """The columns that are named, each once."""
        said = (self.blocks, self.time)
        return list(dict.fromkeys(key for key in said if isinstance(key, str)))

    def taken_from(self, X: object, aside: pd.DataFrame | None) -> list[str]:
        """The columns that are in X for this reason alone, and so are no features."""
        beside = [] if aside is None else list(aside.columns)
        return [name for name in self.names if name not in beside and _has(X, name)]

    def read(self, X: object, aside: pd.DataFrame | None, rows: int) -> RowOrder:
        """The keys and times of a table's rows."""
        blocks = None
        moments = None
        dates = False
        if self.blocks is not None:
            found = _column("blocks", self.blocks, X, aside, rows)
            blocks = keys_of(found, _where("blocks", self.blocks))
        if self.time is not None:
            found = _column("time", self.time, X, aside, rows)
            moments, dates = moments_of(found, _where("time", self.time))
        clock = _clock(moments is not None, dates)
        gap = _span("gap", self.gap or 0, clock)
        horizon = np.inf
        if self.horizon is not None:
            horizon = _span("horizon", self.horizon, clock)
        if horizon <= 0:
            raise InputError(f"horizon must be more than 0. Got {self.horizon!r}.")
        ordered = bool(self.ordered) or moments is not None
        return RowOrder(ordered, blocks, moments, gap, horizon, clock)


def _has(X: object, name: str) -> bool:
    return is_table(X) and name in as_frame(X).columns


def _where(word: str, key: object) -> str:
    return f"column {key!r}" if isinstance(key, str) else word


def _column(
    word: str, key: Key, X: object, aside: pd.DataFrame | None, rows: int
) -> pd.Series:
    """The entries of a column that is named, or those that were handed in."""
    found: Any
    if isinstance(key, str):
        if aside is not None and key in aside.columns:
            found = aside[key]
        elif _has(X, key):
            found = as_frame(X)[key]
        else:
            known = list(as_frame(X).columns) if is_table(X) else []
            has = f" Its columns: {some(known, 10)}." if len(known) else ""
            raise InputError(
                f"{word}={key!r} must name a column of the table, and there is none of that"
                f" name.{has}"
            )
        if isinstance(found, pd.DataFrame):
            raise InputError(f"column names must differ. Got {key!r} more than once.")
    else:
        found = _series(word, key)
    if len(found) != rows:
        raise InputError(
            f"{word} must have an entry for each of the {rows} rows. Got {len(found)}. Where rows"
            " are split after that, as in a grid search, name a column instead."
        )
    column: pd.Series = found
    return column


def _series(word: str, key: Any) -> pd.Series:
    """What was handed in, as a column."""
    try:
        if isinstance(key, pd.Series):
            return key
        return pd.Series(key.ravel() if isinstance(key, np.ndarray) else key)
    except Exception:
        raise InputError(
            f"{word} must be the name of a column, or have an entry per row. Got"
            f" {type(key).__name__}."
        ) from None


def keys_of(values: pd.Series, where: str) -> IntArray:
    """(rows,) numbers that are equal where values are; they mean nothing else.

    >>> keys = keys_of(pd.Series(["a", "b", "a"]), "column 'x'")
    >>> bool(keys[0] == keys[2] != keys[1])
    True
    """
    _refuse_gaps(values, where)
    plain: Any = values
    if isinstance(values.dtype, pd.CategoricalDtype):
        plain = values.astype(values.cat.categories.dtype)
    if kinds.is_bool_dtype(plain) or kinds.is_numeric_dtype(plain):
        numbers = plain.to_numpy(dtype=np.float64) + 0.0  # so that -0 is 0
        return pd.util.hash_array(numbers).view(np.int64)
    if kinds.is_datetime64_any_dtype(plain):
        return pd.util.hash_array(_seconds(plain)).view(np.int64)
    texts = plain.map(str).to_numpy(dtype=object)
    return pd.util.hash_array(texts).view(np.int64)


def moments_of(values: pd.Series, where: str) -> tuple[Array, bool]:
    """(rows,) when each was, as numbers or as seconds since 1970; and whether these are dates.

    >>> moments_of(pd.Series(["1970-01-01", "1970-01-02T12:00"]), "column 'when'")
    (array([     0., 129600.]), True)
    >>> moments_of(pd.Series(["soon"]), "column 'when'")
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: column 'when' must hold numbers, or dates such as 2024-05-31. Got
    'soon' in row 0.
    """
    _refuse_gaps(values, where)
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(values.cat.categories.dtype)
    if isinstance(values.dtype, pd.PeriodDtype):
        values = values.dt.to_timestamp()
    if kinds.is_timedelta64_dtype(values):
        return values.dt.total_seconds().to_numpy(dtype=np.float64), True
    if kinds.is_numeric_dtype(values) and not kinds.is_complex_dtype(values):
        numbers = values.to_numpy(dtype=np.float64)
        _refuse_unread(values, ~np.isfinite(numbers), where)
        return numbers, False
    if kinds.is_datetime64_any_dtype(values):
        return _seconds(values), True
    found = as_dates(values)
    _refuse_unread(values, found.isna().to_numpy(), where)
    return _seconds(found), True


def as_dates(values: pd.Series) -> pd.Series:
    """Dates of texts such as 2024-05-31, 31.5.2024 or 31 May 2024 and of what Python has for dates;
    gaps where there is none.

    Of 5/4/2024 nobody knows which is the month, unless other entries of the column show it.

    >>> as_dates(pd.Series(["5/4/2024", "5/31/2024"])).dt.month.tolist()
    [5, 5]
    >>> bool(as_dates(pd.Series(["5/4/2024", "4/5/2024"])).isna().all())
    True
    """
    texts = values.map(lambda value: value if isinstance(value, str) else str(value))
    found = pd.to_datetime(texts, format="ISO8601", errors="coerce", utc=True)
    if found.notna().any():
        return found
    if texts.head(1).str.contains(r"[A-Za-z]{3}", regex=True).any():
        return _month_named(texts)
    parts = texts.str.strip().str.extract(_DAY_AND_TIME)
    times = pd.to_timedelta(parts["time"].fillna("0:00") + ":00", errors="coerce")
    times = times.fillna(pd.to_timedelta(parts["time"], errors="coerce"))
    read = []
    for form in ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y"):
        days = pd.to_datetime(parts["day"], format=form, errors="coerce", utc=True)
        if days.notna().any():
            read.append(days + times)
    read.sort(key=lambda dates: int(dates.isna().sum()))
    if not read or (len(read) > 1 and read[0].isna().sum() == read[1].isna().sum()):
        return found
    return read[0]


def _month_named(texts: pd.Series) -> pd.Series:
    """Dates whose month is an English name, in full or by its first letters.

    >>> _month_named(pd.Series(["31-May-2024", "1 January 2024"])).dt.month.tolist()
    [5, 1]
    """
    plain = texts.str.replace(r"[-/.,\s]+", " ", regex=True).str.strip()
    plain = plain.str.replace(rf"\b({MONTH})\b", lambda name: name[0][:3], regex=True)
    read = [
        pd.to_datetime(plain, format=form, errors="coerce", utc=True)
        for form in _MONTH_NAMED
    ]
    return min(read, key=lambda dates: int(dates.isna().sum()))


def _seconds(dates: pd.Series) -> Array:
    if dates.dt.tz is not None:
        dates = dates.dt.tz_convert("UTC").dt.tz_localize(None)
    return dates.to_numpy(dtype="datetime64[us]").astype(np.int64) / 1e6


def _refuse_gaps(values: pd.Series, where: str) -> None:
    gone = int(values.isna().sum())
    if gone:
        raise InputError(
            f"{gone} of {len(values)} rows have nothing in {where}. Fill it in, or drop those rows."
        )


def _refuse_unread(values: pd.Series, bad: Any, where: str) -> None:
    at = np.flatnonzero(bad)
    if len(at):
        raise InputError(
            f"{where} must hold numbers, or dates such as 2024-05-31. Got"
            f" {values.iloc[at[0]]!r} in row {at[0]}."
        )


def _clock(time: bool, dates: bool) -> str:
    """What gap and horizon are measured by."""
    return "rows" if not time else "dates" if dates else "numbers"


def _span(word: str, value: float | str, clock: str) -> float:
    """How much of the clock, in its own units.

    >>> _span("gap", "7D", "dates"), _span("gap", 3, "rows")
    (604800.0, 3.0)
    """
    if clock == "dates" and value != 0:
        # a number alone would be taken for nanoseconds
        said = str(value) if re.search("[A-Za-z]", str(value)) else ""
        try:
            found = pd.Timedelta(said).total_seconds()
        except ValueError:
            found = -1.0
        if not found >= 0:
            raise InputError(
                f"{word} must say how long, such as '7D' or '12h', since time holds dates. Got"
                f" {value!r}."
            )
        return found
    unit = "the units of time" if clock == "numbers" else "rows"
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(
            f"{word} must be a number, in {unit}. Got {value!r}."
        ) from None
    real(word, number, least=0.0)
    if clock == "rows" and number % 1:
        raise InputError(f"{word} must be a whole number of rows. Got {value!r}.")
    return number


def beside_of(
    names: Sequence[str | None], features: Sequence[str] | None
) -> tuple[str, ...]:
    """Those of the names that are no features, each once."""
    known = features or ()
    return tuple(dict.fromkeys(name for name in names if name and name not in known))
