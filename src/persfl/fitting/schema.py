"""What a fit knows of its table: the columns, whose row it is, what labels are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from persfl.column_checks import needs_encoding, refuse_missing, refuse_text
from persfl.devices import Devices, offsets
from persfl.encoding import (
    Preparation,
    as_frame,
    instead_of,
    is_table,
)
from persfl.errors import InputError, warn
from persfl.evaluation.row_order import RowOrder
from persfl.fitting.cells import (
    Labels,
    compact,
    named_table,
    one_each,
    refuse_giants,
    refuse_uneven,
    row_weights,
)
from persfl.fitting.date_columns import DateColumn, date_columns
from persfl.fitting.row_columns import OrderWords
from persfl.sources.table import device_codes
from persfl.types import Array, IntArray

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

Table = ArrayLike | pd.DataFrame
Weights = ArrayLike | None
# one per row, or the column of X that says it
Ids = Sequence[object] | pd.Series | Array | str | None


@dataclass(frozen=True, eq=False)
class TableSchema:
    """The columns of a table once it was read, and how to read more rows of it.

    scikit-learn's checks of columns remember them on an estimator and name it in their messages, so
    every reading is told for which estimator it is.
    """

    labels: Labels
    features: int
    """How many columns a table to predict has."""
    names: tuple[str, ...] | None = None
    """What they are called, where they have names."""
    preparation: Preparation | None = None
    """How texts and gaps become numbers; None where all are numbers."""
    device: str | None = None
    """The column that says whose row it is; None where ids are handed in."""
    impute: bool = False
    beside: tuple[str, ...] = ()
    """Columns that say what repeats, and are no features: a table may have them or not."""
    named: str | None = None
    """The column that was named in place of ids in the call of the fit."""

    @property
    def inputs(self) -> list[str]:
        """What the columns of a table to predict are called."""
        return list(self.names or [f"x{i}" for i in range(self.features)])

    @property
    def columns(self) -> list[str]:
        """What the numbers of a row are called once categories are encoded."""
        return self.inputs if self.preparation is None else self.preparation.columns

    @property
    def categories(self) -> list[list[int]]:
        """Numbers of a row that together encode one category."""
        return [] if self.preparation is None else self.preparation.categories

    def matrix(
        self, reader: BaseEstimator, X: Table, devices: Ids
    ) -> tuple[Array, Ids]:
        """Checked numbers of rows to predict or to add, and whose they are."""
        X, devices = _named_column(self.named, X, devices)
        X, devices = _own_column(self.device, X, devices)
        return self.numbers(reader, X), devices

    def numbers(self, reader: BaseEstimator, X: Table) -> Array:
        """Checked numbers of a table without a device column."""
        from sklearn.utils.validation import validate_data

        X = _without(X, self.beside)
        if self.impute and not is_table(X):
            X = named_table(X)
        if self.preparation is not None:
            validate_data(reader, X, skip_check_array=True, reset=False)
            matrix = self.preparation(X)
        else:
            if is_table(X):
                frame = as_frame(X)
                refuse_text(frame)
                refuse_missing(frame, fitting=False)
            matrix = validate_data(reader, X, dtype=np.float64, reset=False)
        refuse_giants(matrix, self.columns if self.preparation else self.names)
        return matrix

    def table_numbers(self, frame: pd.DataFrame) -> Array:
        """Checked numbers of a table with these columns and no others, for no estimator."""
        if self.preparation is not None:
            matrix = self.preparation(frame)
        else:
            refuse_text(frame)
            refuse_missing(frame, fitting=False)
            matrix = frame.to_numpy(dtype=np.float64, na_value=np.nan)
        refuse_giants(matrix, self.columns)
        return matrix

    def rows(
        self,
        reader: BaseEstimator,
        X: Table,
        y: ArrayLike,
        devices: Ids,
        weight: Weights,
        words: OrderWords | None = None,
        aside: pd.DataFrame | None = None,
    ) -> tuple[Devices, RowOrder]:
        """More rows, grouped by device, and what is said of their order."""
        matrix, devices = self.matrix(reader, X, devices)
        order = (words or OrderWords()).read(X, aside, len(matrix))
        y = self.labels.codes(one_each(self.labels.usable(y), matrix))
        weights = row_weights(weight, len(matrix))
        rows, at = _grouped(matrix, y, weights, devices, None, order.time)
        return rows, order.at(at)


class LearnedTable(NamedTuple):
    """A table once it was read: what has to be remembered, the rows, and what is known of their
    order; `dates` are columns that look like time.
    """

    schema: TableSchema
    rows: Devices
    order: RowOrder
    dates: tuple[DateColumn, ...]


def learn_table(
    reader: BaseEstimator,
    X: Table,
    y: ArrayLike,
    devices: Ids,
    weight: Weights,
    *,
    labels: Labels,
    device: str | None = None,
    impute: bool = False,
    words: OrderWords | None = None,
    aside: pd.DataFrame | None = None,
) -> LearnedTable:
    """Checked rows by device, and what has to be remembered to read more of them.

    `words` say what repeats in the rows; the columns that they name are found in `aside`, columns
    of the same rows that are no features, or else taken out of X.

    >>> from sklearn.base import BaseEstimator
    >>> schema, rows, _, _ = learn_table(
    ...     BaseEstimator(), [[0.0], [1.0]], [1, 2], ["a", "b"], None, labels=Labels()
    ... )
    >>> schema.inputs, rows.ids
    (['x0'], ['a', 'b'])
    """
    from sklearn.utils.validation import validate_data

    y = labels.usable(y)
    words = words or OrderWords()
    column = devices if device is None and isinstance(devices, str) else None
    X, devices = _own_column(device, X, devices)
    _warn_twice(X, devices)
    whole = X
    X = _without(X, words.taken_from(X, aside))
    if impute and not is_table(X):
        X = named_table(X)
    frame = as_frame(X) if is_table(X) else None
    preparation = None
    if frame is not None and not frame.shape[1]:
        raise InputError("the table has no feature columns. Add at least one.")
    if frame is not None and (impute or needs_encoding(frame)):
        validate_data(reader, X, skip_check_array=True)
        preparation = Preparation(frame, impute=impute)
        matrix = preparation(frame)
        y = one_each(y, matrix)
    else:
        if frame is not None:
            refuse_missing(frame)
        refuse_uneven(X, y)
        matrix, y = validate_data(
            reader,
            X,
            y,
            dtype=np.float64,
            y_numeric=labels.numeric,
            ensure_all_finite=True,
        )
    labels = labels.learned(y)
    named = vars(reader).get("feature_names_in_")  # scikit-learn leaves it there
    schema = TableSchema(
        labels,
        reader.n_features_in_,
        None if named is None else tuple(map(str, named)),
        preparation,
        device,
        impute,
        tuple(words.taken_from(whole, aside)),
        column,
    )
    known = None if preparation is None and named is None else schema.columns
    weights = row_weights(weight, len(matrix))
    refuse_giants(matrix, known)
    order = words.read(whole, aside, len(matrix))
    rows, at = _grouped(matrix, labels.codes(y), weights, devices, known, order.time)
    dates: tuple[DateColumn, ...] = ()
    if order.random:  # nobody said anything of it
        dates = date_columns(frame, aside, rows, at)
    return LearnedTable(schema, rows, order.at(at), dates)


def _without(X: Table, names: Sequence[str]) -> Table:
    """A table without these columns, as far as it has them."""
    if not names or not is_table(X):
        return X
    return as_frame(X).drop(columns=list(names), errors="ignore")


def _grouped(
    matrix: Array,
    y: Array,
    weight: Array,
    devices: Ids,
    columns: list[str] | None,
    time: Array | None,
) -> tuple[Devices, IntArray]:
    """Rows in the order of their devices, and of a device in that of time; where each was."""
    if devices is None:
        ids = [0]
        codes = np.zeros(len(y), dtype=np.int64)
    else:
        codes, ids = device_codes(devices, len(y))
    # ties stay as they stand in the table
    order = np.lexsort((codes,) if time is None else (time, codes))
    start = offsets(np.bincount(codes, minlength=len(ids)))
    if (np.diff(order) != 1).any():
        matrix, y, weight = (values[order] for values in (matrix, y, weight))
    data = (compact(matrix), compact(y), compact(weight))
    return Devices(*data, start, ids, columns=columns), order


def _warn_twice(X: Table, devices: Ids) -> None:
    """Where a column says whose row it is and was left among the features."""
    if not isinstance(devices, pd.Series) or not is_table(X):
        return
    frame = as_frame(X)
    name = devices.name
    if name not in frame.columns:
        return
    if frame[name].astype(object).tolist() == devices.astype(object).tolist():
        warn(
            f"column {name!r} says whose row it is, and is learned from as well. Leave it out of X,"
            f" or hand in its name: devices={name!r}."
        )


def _named_column(name: str | None, X: Table, devices: Ids) -> tuple[Table, Ids]:
    """The column that a fit was told in its call, taken out of a later table if that has it, where
    the call does not say anew whose rows these are by name.
    """
    frame = as_frame(X) if is_table(X) else None
    by_name = isinstance(devices, str)
    if name is None or by_name or frame is None or name not in frame.columns:
        return X, devices
    whose = frame[name] if devices is None else devices
    return frame.drop(columns=[name]), whose


def _own_column(device: str | None, X: Table, devices: Ids) -> tuple[Table, Ids]:
    """The column of X that says whose row it is, taken out of it: that which was named for all
    calls, or in place of `devices` in this one.
    """
    named = devices if isinstance(devices, str) else None
    if device is not None and devices is not None and named != device:
        raise InputError(
            f"say whose rows these are once: by device={device!r} or by devices=, not both."
        )
    device = named or device
    if device is None:
        return X, devices
    if not is_table(X) or device not in as_frame(X).columns:
        raise InputError(
            f"X must be a table with the column {device!r} that says whose row it is."
            f"{instead_of(str(device), X)}"
        )
    frame = as_frame(X)
    return frame.drop(columns=[device]), frame[device]
