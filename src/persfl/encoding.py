"""From a table's columns to numbers: categories become columns of zeros and ones, missing values
are filled in if asked.

What this reveals of the fleet: the names of the categories that occur anywhere, and with imputing
each column's mean or most frequent category. Both are written into the prepared model, as they are
in any scikit-learn pipeline.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd
from sklearn.impute import SimpleImputer

from persfl.checks import named, some, those
from persfl.errors import InputError
from persfl.types import Array

MOST_CATEGORIES = 100
# What pandas calls objects that are numbers; "empty" has gaps only, as a column of a CSV without
# values has.
_NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal", "boolean", "empty")
_TIMES = (
    "datetime",
    "datetime64",
    "date",
    "time",
    "timedelta",
    "timedelta64",
    "period",
)
_FIT_MISSING = (
    "Fill them in, drop those rows, or let them be replaced by each column's mean or most frequent "
    "category: impute=True (command line: --impute)."
)
_PREDICT_MISSING = (
    "Fill them in, leave those rows out (command line: --missing skip), or fit with impute=True "
    "(command line: --impute), which then fills them in here too."
)
_DATE = r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T]\d{1,2}:\d{2}.*)?"


class Preparation:
    """Learned from the columns of one table, applied to others with the same columns.

    >>> table = pd.DataFrame({"size": [1.0, 2.0], "kind": ["cat", "dog"]})
    >>> preparation = Preparation(table)
    >>> preparation.columns, preparation(table).tolist()
    (['size', 'kind=cat', 'kind=dog'], [[1.0, 1.0, 0.0], [2.0, 0.0, 1.0]])
    """

    def __init__(self, table: Any, *, impute: bool = False) -> None:
        frame = as_frame(table)
        kinds = {name: _kind(frame[name], name) for name in frame.columns}
        numbers = [name for name, kind in kinds.items() if kind == "number"]
        texts = [name for name, kind in kinds.items() if kind == "text"]
        self.numbers, self.texts, self.impute = numbers, texts, impute
        if not impute:
            refuse_missing(frame)
        for name in texts:
            # a person who made it a category means it
            if not isinstance(frame[name].dtype, pd.CategoricalDtype):
                refuse_numbers(frame[name], name)
            many = frame[name].nunique()
            if many > MOST_CATEGORIES:
                raise InputError(
                    f"column {name!r} has {many} different texts such as"
                    f" {frame[name].dropna().iloc[0]!r}; at most {MOST_CATEGORIES} can be"
                    " categories. Leave it out, or turn it into numbers."
                )
        if impute:
            empty = [name for name in frame.columns if frame[name].isna().all()]
            if empty:
                raise InputError(
                    f"{those(empty, 'has', 'have', thing='column')} no values at all: nothing to"
                    " fill in. Leave it out."
                )
        values = self._values(frame)
        self.known: list[list[str]] = []  # the categories of each text column
        # with `impute`: what stands for a gap in each column
        self.fills: list[Any] = []
        if impute:
            self.fills += _means(values, numbers) + [
                _most_frequent(values[name]) for name in texts
            ]
        for name in texts:
            self.known.append(
                sorted({text for text in values[name] if text is not None})
            )
        self._describe()

    def to_words(self) -> dict[str, Any]:
        """What was learned, as values that JSON holds."""
        words = {"numbers": self.numbers, "texts": self.texts, "impute": self.impute}
        return words | {"categories": self.known, "fills": self.fills}

    @classmethod
    def from_words(cls, words: Any) -> Preparation:
        """The inverse of `to_words`, for words that somebody else may have written.

        >>> table = pd.DataFrame({"size": [1.0, None], "kind": ["cat", "dog"]})
        >>> words = Preparation(table, impute=True).to_words()
        >>> Preparation.from_words(words)(table).tolist()
        [[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
        >>> Preparation.from_words(words | {"fills": [float("nan"), "cat"]})
        Traceback (most recent call last):
        ...
        persfl.errors.InputError: what a column's gaps are filled with must be a finite number.
        """
        if not isinstance(words, Mapping) or set(words) != _WORDS:
            raise InputError(f"columns are prepared by {', '.join(sorted(_WORDS))}.")
        self = cls.__new__(cls)
        self.numbers, self.texts = _names(words["numbers"]), _names(words["texts"])
        if len({*self.numbers, *self.texts}) < len(self.numbers) + len(self.texts):
            raise InputError("columns that are prepared must have different names.")
        self.impute = words["impute"]
        self.known = [_names(texts) for texts in words["categories"]]
        self.fills = list(words["fills"])
        if not isinstance(self.impute, bool) or len(self.known) != len(self.texts):
            raise InputError("every column of texts must have its categories.")
        if len(self.fills) != (
            len(self.numbers) + len(self.texts) if self.impute else 0
        ):
            raise InputError("every column must have what its gaps are filled with.")
        for fill in self.fills[: len(self.numbers)]:
            number = isinstance(fill, (int, float)) and not isinstance(fill, bool)
            if not number or not math.isfinite(fill):
                raise InputError(
                    "what a column's gaps are filled with must be a finite number."
                )
        for fill, known in zip(
            self.fills[len(self.numbers) :], self.known, strict=False
        ):
            if fill not in known:
                raise InputError(
                    "what fills a column's gaps must be one of its categories."
                )
        self._describe()
        return self

    def _describe(self) -> None:
        self.columns: list[str] = list(self.numbers)
        self.categories: list[list[int]] = []
        for name, known in zip(self.texts, self.known, strict=True):
            self.categories.append(
                list(range(len(self.columns), len(self.columns) + len(known)))
            )
            self.columns += [f"{name}={value}" for value in known]

    def __call__(self, table: Any) -> Array:
        """The numbers of another table with the same columns."""
        frame = as_frame(table)
        absent = [
            name for name in [*self.numbers, *self.texts] if name not in frame.columns
        ]
        if absent:
            raise InputError(
                f"the table has no {named(absent, 'column')}. Its columns:"
                f" {some(list(frame.columns), 10)}."
            )
        frame = frame[[*self.numbers, *self.texts]]
        for name in self.numbers:
            if _kind(frame[name], name) != "number":
                raise InputError(
                    f"column {name!r} must hold numbers, as it did when fitting. Got"
                    f" {_example(frame[name])}."
                )
        if not self.impute:
            refuse_missing(frame, fitting=False)
        values = self._values(frame)
        found = np.zeros((len(frame), len(self.columns)))
        for k, name in enumerate(self.numbers):
            numbers = values[name]
            if self.impute:
                numbers = np.where(np.isnan(numbers), self.fills[k], numbers)
            found[:, k] = numbers
        for k, name in enumerate(self.texts):
            place: dict[str | None, int] = dict(
                zip(self.known[k], self.categories[k], strict=True)
            )
            if self.impute:
                place[None] = place[self.fills[len(self.numbers) + k]]
            for row, text in enumerate(values[name]):
                # a category that was not there when fitting is none of them
                if text in place:
                    found[row, place[text]] = 1.0
        endless = ~np.isfinite(found)
        if endless.any():
            column = self.columns[int(np.argmax(endless.any(axis=0)))]
            raise InputError(
                f"column {column!r} holds {int(endless.sum())} infinite values. Mend them or drop"
                " those rows."
            )
        return found

    def _values(self, frame: pd.DataFrame) -> dict[str, Any]:
        """Floats, and lists of plain texts, in which a missing one is None."""
        found: dict[str, Any] = {}
        for name in self.numbers:
            found[name] = frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
        for name in self.texts:
            values = frame[name].astype(object)
            gone = values.isna()
            found[name] = [
                None if g else str(v) for v, g in zip(values, gone, strict=True)
            ]
        return found


_WORDS = {"numbers", "texts", "impute", "categories", "fills"}


def _names(words: Any) -> list[str]:
    """Different texts."""
    if not isinstance(words, list) or not all(isinstance(name, str) for name in words):
        raise InputError("columns and categories must be lists of texts.")
    if len(set(words)) < len(words):
        raise InputError("columns and categories must be different texts.")
    return words


def _means(values: Mapping[str, Any], numbers: list[str]) -> list[float]:
    """What scikit-learn fills in for a number that is missing: its column's mean."""
    if not numbers:
        return []
    found = SimpleImputer().fit(pd.DataFrame({name: values[name] for name in numbers}))
    return [float(mean) for mean in found.statistics_]


def _most_frequent(texts: list[str | None]) -> str:
    """The text that occurs most often; of several the first in order, as scikit-learn has it."""
    counts: dict[str, int] = {}
    for text in texts:
        if text is not None:
            counts[text] = counts.get(text, 0) + 1
    return min(counts, key=lambda text: (-counts[text], text))


def as_frame(table: Any) -> pd.DataFrame:
    """A pandas DataFrame from any table that can become one (pandas, polars, pyarrow)."""
    if isinstance(table, pd.DataFrame):
        frame = (
            table
            if all(isinstance(name, str) for name in table.columns)
            else table.rename(columns=str)
        )
    elif hasattr(table, "to_pandas"):
        frame = table.to_pandas()
    else:
        raise InputError(f"a table must be a DataFrame. Got {type(table).__name__}.")
    twice = frame.columns[frame.columns.duplicated()].tolist()
    if twice:
        raise InputError(f"column names must differ. Got {twice[0]!r} more than once.")
    return frame


def is_table(X: Any) -> bool:
    """Whether X has named columns."""
    return isinstance(X, pd.DataFrame) or hasattr(X, "to_pandas")


def needs_preparation(frame: pd.DataFrame) -> bool:
    """Whether some column holds no plain numbers."""
    return any(_kind(frame[name], name) != "number" for name in frame.columns)


def refuse_text(frame: pd.DataFrame) -> None:
    """Stop where a column holds no numbers."""
    for name in frame.columns:
        if _kind(frame[name], name) != "number":
            raise InputError(
                f"column {name!r} must hold numbers, as it did when fitting. Got"
                f" {_example(frame[name])}."
            )


def refuse_missing(frame: pd.DataFrame, *, fitting: bool = True) -> None:
    """Stop where values are missing, saying how many and where, and what can be done when
    fitting or predicting.
    """
    missing = frame.isna().sum()
    missing = missing[missing > 0].sort_values(ascending=False)
    if len(missing):
        where = some(
            [f"{name} ({count})" for name, count in missing.items()], 5
        ).replace("'", "")
        rows = int(frame.isna().any(axis=1).sum())
        what = (
            f"{int(missing.sum())} values are missing (NaN) in {rows} of {len(frame)} rows:"
            f" {where}."
        )
        raise InputError(f"{what} {_FIT_MISSING if fitting else _PREDICT_MISSING}")


def _kind(values: pd.Series, name: Any) -> str:
    if pd.api.types.is_complex_dtype(values):
        raise InputError(
            f"column {name!r} must hold real numbers or texts. Got complex numbers."
        )
    if pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values):
        return "number"
    if pd.api.types.is_datetime64_any_dtype(
        values
    ) or pd.api.types.is_timedelta64_dtype(values):
        raise InputError(_times(name))
    if isinstance(values.dtype, (pd.CategoricalDtype, pd.StringDtype)):
        return "text"
    # of objects: by what they are, gaps aside
    found = pd.api.types.infer_dtype(values, skipna=True)
    if found == "string":
        return "text"
    if found in _NUMBERS:
        return "number"
    if found in _TIMES:
        raise InputError(_times(name))
    for value in values.dropna():
        if isinstance(value, complex) or not isinstance(value, (str, Number)):
            raise InputError(
                f"column {name!r} must hold numbers or texts. Got {value!r}."
            )
    raise InputError(f"column {name!r} mixes numbers and texts. Make it one of them.")


def _times(name: Any) -> str:
    return (
        f"column {name!r} holds dates or times. Turn it into numbers (days since a start), or leave"
        " it out."
    )


def refuse_numbers(values: pd.Series, name: Any) -> None:
    """Numbers written as text would become one category each."""
    present = values.dropna().astype(str).str.strip()
    if not len(present):
        return
    if present.str.fullmatch(_DATE).mean() >= 0.9:
        raise InputError(
            f"column {name!r} holds dates, such as {present.iloc[0]!r}. Turn it into numbers (days"
            " since a start), or leave it out."
        )
    bad = present[pd.to_numeric(present, errors="coerce").isna()]
    advice = _marks(bad, present.drop(bad.index)) if len(bad) else ""
    if advice:
        raise InputError(
            f"column {name!r} holds numbers such as {bad.iloc[0]!r}, {advice}"
        )
    if len(present) >= 10 and len(bad) <= 0.1 * len(present):
        such = (
            f"{len(bad)} values are not, such as {bad.iloc[0]!r}. Mend those"
            if len(bad)
            else "they are stored as text. Convert it"
        )
        raise InputError(
            f"column {name!r} holds numbers, but {such}, or leave the column out."
        )


def _marks(bad: pd.Series, plain: pd.Series) -> str:
    """What to do about numbers with marks that a reader must be told of, or "" where these are
    none.

    `plain` are the others of the column, which read as numbers as they stand.

    >>> _marks(pd.Series(["1,234", "56,789"]), pd.Series(["7"])).split(". ")[0]
    'which may be 1234 or 1.234'
    """

    def mostly(pattern: str) -> bool:
        found = bad.str.fullmatch(rf"[-+]?{pattern}").sum()
        return bool(found and found + len(plain) >= 0.9 * (len(bad) + len(plain)))

    comma, dot = _reading("decimal", ","), _reading("thousands", ".")
    if mostly(r"\d{1,3}(,\d{3})+(\.\d+)?"):
        first = bad.iloc[0]
        groups = (
            bad.str.contains(r",.*[,.]").any()
            or plain.str.contains(".", regex=False).any()
        )
        if not groups and bad.str.contains(r"^[-+]?0").any():
            return f"with a decimal comma. Read the table with {comma}."
        if groups:
            reading = _reading("thousands", ",")
            return f"with commas between thousands. Read the table with {reading}."
        return (
            f"which may be {first.replace(',', '')} or {first.replace(',', '.')}. Read the table"
            f" with {_reading('thousands', ',')} for the first, with {comma} for the second."
        )
    if mostly(r"\d+,\d+"):
        return f"with a decimal comma. Read the table with {comma}."
    if mostly(r"(\d{1,3}(\.\d{3})+|\d+)(,\d+)?"):
        both = f"{dot} and {comma}" if bad.str.contains(",", regex=False).any() else dot
        return f"with dots between thousands. Read the table with {both}."
    if mostly(r"\d{1,3}([' \u00a0\u202f]\d{3})+([.,]\d+)?"):
        return "with marks between thousands. Write them without."
    return ""


def _reading(option: str, mark: str) -> str:
    """How to say it, in Python and on the command line."""
    return f"{option}='{mark}' (command line: --{option} {mark})"


def _example(values: pd.Series) -> str:
    present = values.dropna()
    return repr(present.iloc[0]) if len(present) else "nothing"
