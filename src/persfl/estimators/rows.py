"""From X, y and devices to checked rows by device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import column_or_1d, validate_data

from persfl.checks import LARGEST
from persfl.devices import Devices, offsets
from persfl.encoding import (
    Preparation,
    as_frame,
    is_table,
    needs_preparation,
    refuse_missing,
    refuse_text,
)
from persfl.errors import InputError
from persfl.sources.table import device_codes
from persfl.types import Array


class WithRows(BaseEstimator, ABC):  # type: ignore[misc]
    """What an estimator remembers about columns, labels and devices, and how it reads rows by
    that.
    """

    device: str | None
    impute: bool
    random_state: Any
    preparation_: Preparation | None
    _numeric: bool

    @abstractmethod
    def _learn_labels(self, y: Any, classes: Any) -> Array:
        """Labels as numbers; what they may be is remembered."""

    @abstractmethod
    def _labels(self, y: Any) -> Array:
        """Labels as numbers, by what was remembered."""

    def _learn_rows(
        self, X: Any, y: Any, devices: Any, sample_weight: Any, classes: Any = None
    ) -> Devices:
        """Checked numbers by device; what has to be remembered about columns, classes and seed
        is remembered.
        """
        self._seed = _seed(self.random_state)
        self.preparation_: Preparation | None = None
        y = self._usable(y)
        frame = as_frame(X) if is_table(X) else None
        X, devices = self._own_column(X, frame, devices)
        if self.impute and not is_table(X):
            X = _table(X)
        frame = as_frame(X) if is_table(X) else None
        if frame is not None and not frame.shape[1]:
            raise InputError("the table has no feature columns. Add at least one.")
        if (frame is not None and needs_preparation(frame)) or (
            self.impute and frame is not None
        ):
            validate_data(self, X, skip_check_array=True)
            self.preparation_ = Preparation(frame, impute=self.impute)
            matrix = self.preparation_(frame)
            y = _one_each(y, matrix)
        else:
            if frame is not None:
                refuse_missing(frame)
            matrix, y = validate_data(
                self,
                X,
                y,
                dtype=np.float64,
                y_numeric=self._numeric,
                ensure_all_finite=True,
            )
        y = self._learn_labels(y, classes)
        weight = _weights(sample_weight, len(matrix))
        columns = (
            self.preparation_.columns
            if self.preparation_
            else list(getattr(self, "feature_names_in_", [])) or None
        )
        _refuse_giants(matrix, columns)
        return self._grouped(matrix, y, weight, devices, columns)

    def _more_rows(self, X: Any, y: Any, devices: Any, sample_weight: Any) -> Devices:
        """As `_learn_rows`, by what was remembered."""
        matrix, devices = self._matrix(X, devices)
        y = self._labels(_one_each(self._usable(y), matrix))
        return self._grouped(
            matrix, y, _weights(sample_weight, len(matrix)), devices, None
        )

    def _usable(self, y: Any) -> Any:
        """Labels, none of them missing; numbers where this is a regression, none of them too
        large.
        """
        if y is None:
            return y
        values = y if isinstance(y, pd.Series) else np.asarray(y)
        if values.ndim > 1 or not len(values):
            return y  # scikit-learn's own checks have a sentence for that
        gone = int(pd.isna(pd.Series(values)).sum())
        if gone:
            raise InputError(
                f"{gone} of {len(values)} labels are missing (NaN). Drop those rows."
            )
        if not self._numeric:
            return y
        numbers = _label_numbers(values)
        _refuse_giants(numbers, None)
        return numbers if pd.api.types.is_object_dtype(values.dtype) else y

    def _grouped(
        self, matrix: Array, y: Array, weight: Array, devices: Any, columns: Any
    ) -> Devices:
        if devices is None:
            return Devices(
                _plain(matrix),
                _plain(y),
                _plain(weight),
                np.array([0, len(y)]),
                [0],
                columns=columns,
            )
        codes, ids = device_codes(devices, len(y))
        order = np.argsort(codes, kind="stable")
        start = offsets(np.bincount(codes, minlength=len(ids)))
        # rows already lie device by device: no copy
        if len(order) and (np.diff(order) == 1).all():
            return Devices(
                _plain(matrix), _plain(y), _plain(weight), start, ids, columns=columns
            )
        return Devices(
            np.ascontiguousarray(matrix[order]),
            y[order],
            weight[order],
            start,
            ids,
            columns=columns,
        )

    def _own_column(
        self, X: Any, frame: pd.DataFrame | None, devices: Any
    ) -> tuple[Any, Any]:
        """The column of X that says whose row it is, taken out of it."""
        if isinstance(devices, str):
            name = type(self).__name__
            raise InputError(
                f"devices must say for each row whose it is. Got {devices!r}: if that is a column"
                f" of X, did you mean {name}(device={devices!r})? Otherwise hand in the column"
                " itself."
            )
        if self.device is None:
            return X, devices
        if devices is not None:
            raise InputError(
                f"say whose rows these are once: by device={self.device!r} or by devices=, not"
                " both."
            )
        if frame is None or self.device not in frame.columns:
            raise InputError(
                f"X must be a table with the column {self.device!r} that says whose row it is."
            )
        return frame.drop(columns=[self.device]), frame[self.device]

    def _matrix(self, X: Any, devices: Any) -> tuple[Array, Any]:
        """Checked numbers of rows to predict or to add."""
        X, devices = self._own_column(X, as_frame(X) if is_table(X) else None, devices)
        if self.impute and not is_table(X):
            X = _table(X)
        if self.preparation_ is not None:
            validate_data(self, X, skip_check_array=True, reset=False)
            matrix = self.preparation_(X)
            columns: list[str] | None = self.preparation_.columns
        else:
            if is_table(X):
                frame = as_frame(X)
                refuse_text(frame)
                refuse_missing(frame, fitting=False)
            matrix = validate_data(self, X, dtype=np.float64, reset=False)
            columns = list(getattr(self, "feature_names_in_", [])) or None
        _refuse_giants(matrix, columns)
        return matrix, devices


def _plain(values: Array) -> Array:
    """Without gaps and writable, as compiled kernels want it; pandas hands out columns that are
    neither.
    """
    return np.require(values, dtype=np.float64, requirements=["C", "W"])


def _one_each(y: Any, matrix: Array) -> Any:
    """Labels, one per row."""
    y = column_or_1d(y, warn=True)
    if len(y) != len(matrix):
        raise InputError(
            f"there must be one label per row. Got {len(matrix)} rows and {len(y)} labels."
        )
    return y


def _weights(sample_weight: Any, rows: int) -> Array:
    """One weight per row; a single number is everybody's."""
    if sample_weight is None:
        return np.ones(rows)
    if isinstance(sample_weight, Number):
        sample_weight = np.full(rows, sample_weight)
    weight = check_array(
        sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
    )
    if weight.ndim != 1 or len(weight) != rows:
        raise InputError(
            f"sample_weight must be one number per row ({rows}). Got shape {weight.shape}."
        )
    if not weight.any():
        raise InputError(
            "every sample_weight is zero. Give some rows a weight above zero."
        )
    _refuse_giants(weight, None, what="sample_weight")
    return np.asarray(weight)


def _label_numbers(values: Any) -> Array:
    """Labels of a regression; text is a mistake that has a name."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        odd = next(
            (
                v
                for v in np.asarray(values, dtype=object).tolist()
                if not isinstance(v, (int, float))
            ),
            None,
        )
        raise InputError(
            f"labels of a regression must be numbers. Got {odd!r}. For classes use"
            " PersonalizedClassifier."
        ) from None


def _refuse_giants(values: Array, columns: Any, *, what: str = "y") -> None:
    """Stop at numbers whose squares no computer can add up; one such cell would be in every
    model.
    """
    with np.errstate(invalid="ignore"):
        giant = (np.abs(values) > LARGEST) & np.isfinite(values)
    if not giant.any():
        return
    place = np.argwhere(giant)[0].tolist()
    if len(place) == 2:
        what = f"column {str(columns[place[1]]) if columns else place[1]!r}"
    raise InputError(
        f"{what} holds {float(values[tuple(place)]):g}, too large to compute with (at most"
        f" {LARGEST:g}; {int(giant.sum())} such values in all). Mend them, or give that column"
        " another unit."
    )


def _seed(random_state: Any) -> int:
    if isinstance(random_state, (int, np.integer)) and not isinstance(
        random_state, bool
    ):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _table(X: Any) -> pd.DataFrame:
    """An array as a table with made-up names, to be prepared as tables are."""
    values = np.asarray(X, dtype=np.float64)
    if values.ndim != 2:
        raise InputError(
            f"X must have rows and columns (2 axes). Got shape {values.shape}."
        )
    return pd.DataFrame(values, columns=[f"x{i}" for i in range(values.shape[1])])
