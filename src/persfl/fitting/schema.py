"""What a fit knows of its table: the columns, whose row it is, what labels are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from persfl.column_checks import needs_encoding, refuse_missing, refuse_text
from persfl.devices import Devices, offsets
from persfl.encoding import (
    Preparation,
    as_frame,
    is_table,
)
from persfl.errors import InputError
from persfl.fitting.cells import (
    Labels,
    compact,
    named_table,
    one_each,
    refuse_giants,
    row_weights,
)
from persfl.sources.table import device_codes
from persfl.types import Array

Table = ArrayLike | pd.DataFrame
Weights = ArrayLike | None
Ids = Sequence[object] | pd.Series | Array | None  # one per row


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
        X, devices = _own_column(reader, self.device, X, devices)
        return self.numbers(reader, X), devices

    def numbers(self, reader: BaseEstimator, X: Table) -> Array:
        """Checked numbers of a table without a device column."""
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

    def rows(
        self,
        reader: BaseEstimator,
        X: Table,
        y: ArrayLike,
        devices: Ids,
        weight: Weights,
    ) -> Devices:
        """More rows, grouped by device."""
        matrix, devices = self.matrix(reader, X, devices)
        y = self.labels.codes(one_each(self.labels.usable(y), matrix))
        return _grouped(matrix, y, row_weights(weight, len(matrix)), devices, None)


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
) -> tuple[TableSchema, Devices]:
    """Checked rows by device, and what has to be remembered to read more of them.

    >>> from sklearn.base import BaseEstimator
    >>> schema, rows = learn_table(
    ...     BaseEstimator(), [[0.0], [1.0]], [1, 2], ["a", "b"], None, labels=Labels()
    ... )
    >>> schema.inputs, rows.ids
    (['x0'], ['a', 'b'])
    """
    y = labels.usable(y)
    X, devices = _own_column(reader, device, X, devices)
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
    )
    known = None if preparation is None and named is None else schema.columns
    weights = row_weights(weight, len(matrix))
    refuse_giants(matrix, known)
    return schema, _grouped(matrix, labels.codes(y), weights, devices, known)


def _grouped(
    matrix: Array, y: Array, weight: Array, devices: Ids, columns: list[str] | None
) -> Devices:
    """Rows in the order of their devices."""
    if devices is None:
        start = np.array([0, len(y)])
        ids = [0]
        order = np.arange(len(y))
    else:
        codes, ids = device_codes(devices, len(y))
        order = np.argsort(codes, kind="stable")
        start = offsets(np.bincount(codes, minlength=len(ids)))
    if (np.diff(order) != 1).any():
        matrix, y, weight = (values[order] for values in (matrix, y, weight))
    return Devices(
        compact(matrix), compact(y), compact(weight), start, ids, columns=columns
    )


def _own_column(
    reader: BaseEstimator, device: str | None, X: Table, devices: Ids
) -> tuple[Table, Ids]:
    """The column of X that says whose row it is, taken out of it."""
    if isinstance(devices, str):
        name = type(reader).__name__
        raise InputError(
            f"devices must say for each row whose it is. Got {devices!r}: if that is a column"
            f" of X, did you mean {name}(device={devices!r})? Otherwise hand in the column"
            " itself."
        )
    if device is None:
        return X, devices
    if devices is not None:
        raise InputError(
            f"say whose rows these are once: by device={device!r} or by devices=, not both."
        )
    if not is_table(X) or device not in as_frame(X).columns:
        raise InputError(
            f"X must be a table with the column {device!r} that says whose row it is."
        )
    frame = as_frame(X)
    return frame.drop(columns=[device]), frame[device]
