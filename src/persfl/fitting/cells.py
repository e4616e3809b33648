"""The cells of a table: numbers, weights, labels, and the ids of devices."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from persfl.checks import LARGEST, some
from persfl.errors import InputError

if TYPE_CHECKING:
    from persfl.types import Array, IntArray


# Numbers


def compact(values: Array) -> Array:
    """Without gaps and writable, as compiled kernels want it; pandas hands out columns that are
    neither.
    """
    return np.require(values, dtype=np.float64, requirements=["C", "W"])


def one_each(labels: ArrayLike, matrix: Array) -> NDArray[Any]:
    """Labels, one per row."""
    from sklearn.utils.validation import column_or_1d

    y: NDArray[Any] = column_or_1d(labels, warn=True)
    refuse_uneven(matrix, y)
    return y


def refuse_uneven(table: Any, labels: Any) -> None:
    """Stop where rows and labels differ in number. What is neither table nor list is left to
    scikit-learn's own checks.

    >>> refuse_uneven([[0.0], [1.0]], [1, 2])
    >>> refuse_uneven([[0.0], [1.0]], [1, 2, 3])
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: there must be one label per row. Got 2 rows and 3 labels.
    """
    try:
        rows, many = (
            values.shape[0] if hasattr(values, "shape") else len(values)
            for values in (table, labels)
        )
    except (TypeError, IndexError):
        return
    if rows != many:
        raise InputError(
            f"there must be one label per row. Got {rows} rows and {many} labels."
        )


def row_weights(weight: ArrayLike | None, rows: int) -> Array:
    """One weight per row; a single number is everybody's.

    >>> row_weights(2, 3).tolist()
    [2.0, 2.0, 2.0]
    """
    from sklearn.utils import check_array

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


# Labels


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels of a regression, or with `numeric=False` of a classification.

    >>> Labels(numeric=False).learned(np.array(["b", "a"])).codes(["a", "b"]).tolist()
    [0.0, 1.0]
    """

    numeric: bool = True
    classes: NDArray[Any] | None = None
    """The classes in order; None before any were seen, and for numbers."""

    @property
    def count(self) -> int:
        """How many classes there are; 0 for numbers."""
        return 0 if self.classes is None else len(self.classes)

    def usable(self, y: Any) -> Any:
        """Labels, none of them missing; numbers where this is a regression, none too large."""
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
        if not self.numeric:
            truths = pd.api.types.infer_dtype(values) == "boolean"  # of any dtype
            return np.asarray(values, dtype=bool) if truths else y
        numbers = _numbers(values)
        refuse_giants(numbers, None)
        return numbers if pd.api.types.is_object_dtype(values.dtype) else y

    def learned(self, y: ArrayLike) -> Labels:
        """The same with the classes of these labels, unless they were named before."""
        from sklearn.utils.multiclass import check_classification_targets

        if self.numeric:
            return self
        check_classification_targets(y)
        found = np.unique(y) if self.classes is None else self.classes
        if len(found) < 2:
            raise InputError(
                f"a classifier needs at least 2 classes. Got 1 class: {found.tolist()[0]!r}."
            )
        return replace(self, classes=found)

    def codes(self, y: ArrayLike) -> Array:
        """Labels as numbers: as they are, or their place among the classes."""
        if self.classes is not None:
            return _places(np.asarray(y), self.classes)
        values = np.asarray(y, dtype=np.float64)
        if not np.isfinite(values).all():
            count = int((~np.isfinite(values)).sum())
            raise InputError(
                f"{count} labels are infinite. Mend them or drop those rows."
            )
        return values


def _places(y: NDArray[Any], classes: NDArray[Any]) -> Array:
    place = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    strange = classes[place] != y
    if strange.any():
        raise InputError(
            f"label {some(np.unique(y[strange]).tolist())} is not one of the classes"
            f" {some(classes.tolist(), 10)}. Name all classes at the first call of"
            " partial_fit: classes=[...]."
        )
    return np.asarray(place, dtype=np.float64)


def _numbers(values: ArrayLike) -> Array:
    """Labels of a regression; text is a mistake that has a name."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        items = np.asarray(values, dtype=object).tolist()
        odd = next((v for v in items if not isinstance(v, (int, float))), None)
        raise InputError(
            f"labels of a regression must be numbers. Got {odd!r}. For classes use"
            " PersonalizedClassifier."
        ) from None


# Ids


def id_array(ids: Iterable[Hashable]) -> NDArray[Any]:
    """Ids as an array; of objects where they are not all numbers or all texts.

    >>> id_array(["a", 1]).dtype, id_array([2, 1]).tolist()
    (dtype('O'), [2, 1])
    """
    names = list(ids)
    if len({type(name) for name in names}) == 1 and not isinstance(names[0], tuple):
        plain = np.array(names)
        if plain.ndim == 1 and plain.tolist() == names:
            return plain
    kept = np.empty(len(names), dtype=object)
    kept[:] = names
    return kept


def places(known: Sequence[Hashable], ids: Sequence[Hashable]) -> IntArray:
    """The positions of ids among those that are known, -1 for those that are not.

    >>> places(["a", "b"], ["b", "c"]).tolist()
    [1, -1]
    """
    at = {name: i for i, name in enumerate(known)}
    refuse_lookalikes(at, ids)
    return np.array([at.get(name, -1) for name in ids], dtype=np.int64)


def refuse_lookalikes(known: Iterable[Hashable], ids: Iterable[Hashable]) -> None:
    """Stop where a device seems new only because its id is of another kind: 7 and '7'."""
    there = set(known)
    strangers = [name for name in ids if name not in there]
    if not strangers:
        return
    same = {str(name): name for name in there}
    twin = next((name for name in strangers if str(name) in same), None)
    if twin is not None:
        before = same[str(twin)]
        raise InputError(
            f"device {twin!r} is known as {before!r}: the same id, but a"
            f" {type(twin).__name__} where a {type(before).__name__} was used before."
            " Give ids of one kind."
        )
