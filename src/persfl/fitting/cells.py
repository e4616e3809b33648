"""Checks of the numbers of a table: weights, lengths, and cells too large to compute with."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array
from sklearn.utils.validation import column_or_1d

from persfl.checks import LARGEST
from persfl.errors import InputError
from persfl.types import Array


def compact(values: Array) -> Array:
    """Without gaps and writable, as compiled kernels want it; pandas hands out columns that are
    neither.
    """
    return np.require(values, dtype=np.float64, requirements=["C", "W"])


def one_each(labels: ArrayLike, matrix: Array) -> NDArray[Any]:
    """Labels, one per row."""
    y: NDArray[Any] = column_or_1d(labels, warn=True)
    if len(y) != len(matrix):
        raise InputError(
            f"there must be one label per row. Got {len(matrix)} rows and {len(y)} labels."
        )
    return y


def row_weights(weight: ArrayLike | None, rows: int) -> Array:
    """One weight per row; a single number is everybody's.

    >>> row_weights(2, 3).tolist()
    [2.0, 2.0, 2.0]
    """
    if weight is None:
        return np.ones(rows)
    if isinstance(weight, Number):
        weight = np.full(rows, weight)
    found = check_array(
        weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
    )
    if found.shape != (rows,):
        raise InputError(
            f"sample_weight must be one number per row ({rows}). Got shape {found.shape}."
        )
    if not found.any():
        raise InputError(
            "every sample_weight is zero. Give some rows a weight above zero."
        )
    refuse_giants(found, None, what="sample_weight")
    return np.asarray(found)


def refuse_giants(
    values: Array, columns: Sequence[str] | None, *, what: str = "y"
) -> None:
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


def named_table(X: ArrayLike) -> pd.DataFrame:
    """An array as a table with made-up names, to be prepared as tables are."""
    values = np.asarray(X, dtype=np.float64)
    if values.ndim != 2:
        raise InputError(
            f"X must have rows and columns (2 axes). Got shape {values.shape}."
        )
    return pd.DataFrame(values, columns=[f"x{i}" for i in range(values.shape[1])])
