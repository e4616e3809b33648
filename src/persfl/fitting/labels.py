"""What labels are: numbers, or classes that are known by their place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets

from persfl.checks import some
from persfl.errors import InputError
from persfl.fitting.cells import refuse_giants
from persfl.types import Array


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
            return y
        numbers = _numbers(values)
        refuse_giants(numbers, None)
        return numbers if pd.api.types.is_object_dtype(values.dtype) else y

    def learned(self, y: ArrayLike) -> Labels:
        """The same with the classes of these labels, unless they were named before."""
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
