"""Named arrays, and the sentences about those that somebody else made and that are of no use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from persfl.errors import InputError

AnyArray = NDArray[Any]  # of any kind of numbers, until they are checked
Arrays = Mapping[str, AnyArray]
LARGE = 1e15  # a number beyond this is absurd in any units


def prefixed(prefix: str, arrays: Arrays) -> dict[str, AnyArray]:
    """The same under longer names.

    >>> prefixed("trust_", {"asked": 1})
    {'trust_asked': 1}
    """
    return {prefix + name: array for name, array in arrays.items()}


def under(prefix: str, arrays: Arrays) -> dict[str, AnyArray]:
    """The inverse of `prefixed`: those whose names begin like this, without it."""
    size = len(prefix)
    return {
        name[size:]: array for name, array in arrays.items() if name.startswith(prefix)
    }


def has_form(arrays: Arrays, forms: Mapping[str, str], **sizes: int) -> bool:
    """Whether arrays have these types and axes.

    `"f8 K 2"` is float64 of K rows and two columns, `"fi K"` K numbers of any size, `"f8|f4 K"` of
    one of two types. A letter is one length wherever it stands; `sizes` are those known before.

    >>> has_form(
    ...     {"a": np.zeros((3, 2)), "b": np.ones(3)}, {"a": "f8 N F", "b": "f N"}, F=2
    ... )
    True
    """
    for name, form in forms.items():
        kinds, *axes = form.split()
        array = arrays[name]
        if not any(_is_of(kind, array) for kind in kinds.split("|")):
            return False
        if len(axes) != array.ndim:
            return False
        for axis, length in zip(axes, array.shape, strict=True):
            wanted = int(axis) if axis.isdigit() else sizes.setdefault(axis, length)
            if length != wanted:
                return False
    return True


def _is_of(kind: str, array: AnyArray) -> bool:
    if kind.isalpha():
        return array.dtype.kind in kind
    return array.dtype == np.dtype(kind)


def is_sensible(values: AnyArray) -> bool:
    """Whether all are finite and of a sensible size; false also where they are NaN."""
    return bool((np.abs(values) <= LARGE).all())


def check_form(sound: bool | np.bool_) -> None:
    """Stop where one model is not what its family's models are."""
    if not sound:
        raise InputError("a model does not have the form of its family.")


def check_arrays(sound: bool | np.bool_) -> None:
    """Stop where the arrays of a whole fleet do not fit together."""
    if not sound:
        raise InputError(
            "the run's models are damaged: their parts do not fit together."
        )


def check_finite(sound: bool | np.bool_) -> None:
    """Stop where numbers are none."""
    if not sound:
        raise InputError("models must hold finite numbers.")
