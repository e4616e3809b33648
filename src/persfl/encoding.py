"""From a table's columns to numbers: categories become columns of zeros and ones, missing values
are filled in if asked.

What this reveals of the fleet: the names of the categories that occur anywhere, and with imputing
each column's mean or most frequent category. Both are written into the prepared model, as they are
in any scikit-learn pipeline.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, runtime_checkable

import numpy as np
import pandas as pd

from persfl.checks import named, some, those
from persfl.column_checks import (
    column_kind,
    refuse_missing,
    refuse_numbers,
    refuse_text,
)
from persfl.errors import InputError

if TYPE_CHECKING:
    from persfl.types import Array

MOST_CATEGORIES = 100


@runtime_checkable
class ForeignTable(Protocol):
    """A table of another library: polars, pyarrow."""

    def to_pandas(self) -> pd.DataFrame: ...


class Preparation:
    """Learned from the columns of one table, applied to others with the same columns.

    >>> table = pd.DataFrame({"size": [1.0, 2.0], "kind": ["cat", "dog"]})
    >>> preparation = Preparation(table)
    >>> preparation.columns, preparation(table).tolist()
    (['size', 'kind=cat', 'kind=dog'], [[1.0, 1.0, 0.0], [2.0, 0.0, 1.0]])
    """

    def __init__(self, table: object, *, impute: bool = False) -> None:
        frame = as_frame(table)
        kinds = {name: column_kind(frame[name], name) for name in frame.columns}
        self.numbers = [name for name, kind in kinds.items() if kind == "number"]
        self.texts = [name for name, kind in kinds.items() if kind == "text"]
        self.impute = impute
        if not impute:
            refuse_missing(frame)
        for name in self.texts:
            _refuse_strange_texts(frame[name], name)
        if impute:
            _refuse_empty(frame)
        values = self._values(frame)
        self.known: list[list[str]] = []  # the categories of each text column
        for name in self.texts:
            self.known.append(sorted({t for t in values[name] if t is not None}))
        # with `impute`: what stands for a gap in each column
        self.fills: list[Any] = []
        if impute:
            self.fills += _means(values, self.numbers)
            self.fills += [_most_frequent(values[name]) for name in self.texts]
        self._describe()

    def to_words(self) -> dict[str, Any]:
        """What was learned, as values that JSON holds."""
        words = {"numbers": self.numbers, "texts": self.texts, "impute": self.impute}
        return words | {"categories": self.known, "fills": self.fills}

    @classmethod
    def from_words(cls, words: object) -> Preparation:
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
        # every category is a column of numbers, as long as the table that is predicted
        if any(len(texts) > MOST_CATEGORIES for texts in self.known):
            raise InputError(
                f"a column of texts must have at most {MOST_CATEGORIES} categories."
            )
        self._check_fills()
        self._describe()
        return self

    def _check_fills(self) -> None:
        count = len(self.numbers)
        if len(self.fills) != (count + len(self.texts) if self.impute else 0):
            raise InputError("every column must have what its gaps are filled with.")
        for fill in self.fills[:count]:
            number = isinstance(fill, (int, float)) and not isinstance(fill, bool)
            if not number or not math.isfinite(fill):
                raise InputError(
                    "what a column's gaps are filled with must be a finite number."
                )
        for fill, known in zip(self.fills[count:], self.known, strict=False):
            if fill not in known:
                raise InputError(
                    "what fills a column's gaps must be one of its categories."
                )

    def _describe(self) -> None:
        self.columns: list[str] = list(self.numbers)
        self.categories: list[list[int]] = []
        for name, known in zip(self.texts, self.known, strict=True):
            first = len(self.columns)
            self.columns += [f"{name}={value}" for value in known]
            self.categories.append(list(range(first, len(self.columns))))

    def __call__(self, table: object) -> Array:
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
        refuse_text(frame[self.numbers])
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
            # tables are read without blanks around texts, which earlier ones may have had
            place: dict[str | None, int] = {
                text.strip(): column
                for text, column in zip(self.known[k], self.categories[k], strict=True)
            }
            place |= zip(self.known[k], self.categories[k], strict=True)
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


def _refuse_strange_texts(values: pd.Series, name: str) -> None:
    """Stop where texts are no categories: numbers, dates, or too many."""
    # a person who made it a category means it
    if not isinstance(values.dtype, pd.CategoricalDtype):
        refuse_numbers(values, name)
    many = values.nunique()
    if many > MOST_CATEGORIES:
        raise InputError(
            f"column {name!r} has {many} different texts such as"
            f" {values.dropna().iloc[0]!r}; at most {MOST_CATEGORIES} can be"
            " categories. Leave it out (command line: --drop), or turn it into numbers."
        )


def _refuse_empty(frame: pd.DataFrame) -> None:
    """Stop where there is nothing to learn what gaps are filled with."""
    empty = [name for name in frame.columns if frame[name].isna().all()]
    if empty:
        raise InputError(
            f"{those(empty, 'has', 'have', thing='column')} no values at all: nothing to"
            " fill in. Leave it out."
        )


_WORDS = {"numbers", "texts", "impute", "categories", "fills"}


def _names(words: object) -> list[str]:
    """Different texts."""
    if not isinstance(words, list) or not all(isinstance(name, str) for name in words):
        raise InputError("columns and categories must be lists of texts.")
    if len(set(words)) < len(words):
        raise InputError("columns and categories must be different texts.")
    return words


def _means(values: Mapping[str, Array], numbers: list[str]) -> list[float]:
    """What scikit-learn fills in for a number that is missing: its column's mean."""
    from sklearn.impute import SimpleImputer

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


def as_frame(table: object) -> pd.DataFrame:
    """A pandas DataFrame from any table that can become one (pandas, polars, pyarrow)."""
    if isinstance(table, pd.DataFrame):
        texts = all(isinstance(name, str) for name in table.columns)
        frame = table if texts else table.rename(columns=str)
    elif isinstance(table, ForeignTable):
        frame = table.to_pandas()
    else:
        raise InputError(f"a table must be a DataFrame. Got {type(table).__name__}.")
    twice = frame.columns[frame.columns.duplicated()].tolist()
    if twice:
        raise InputError(f"column names must differ. Got {twice[0]!r} more than once.")
    return frame


def is_table(X: object) -> TypeGuard[pd.DataFrame | ForeignTable]:
    """Whether X has named columns."""
    return isinstance(X, (pd.DataFrame, ForeignTable))


def instead_of(name: str, X: object) -> str:
    """What may be meant by a column that is not there, or where the names of columns got lost."""
    if not is_table(X):
        return (
            f" Got {type(X).__name__}, which has no names: if a step of a pipeline made it, say"
            " set_output(transform='pandas') there."
        )
    columns = [str(column) for column in as_frame(X).columns]
    prefixed = [column for column in columns if column.endswith(f"__{name}")]
    if prefixed:
        return (
            f" It came as {prefixed[0]!r}: say verbose_feature_names_out=False in the"
            " ColumnTransformer."
        )
    near = get_close_matches(name, columns, 1)
    return f" Did you mean {near[0]!r}?" if near else ""
