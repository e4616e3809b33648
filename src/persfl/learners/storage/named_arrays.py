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


def check_names(arrays: Arrays, wanted: set[str]) -> None:
    """Stop where there are other arrays than these."""
    check_form(set(arrays) == wanted)


def check_form(sound: bool | np.bool_) -> None:
    """Stop where one model is not what its family's models are."""
    if not sound:
        raise InputError("a model does not have the form of its family.")


def check_parts(sound: bool | np.bool_) -> None:
    """Stop where the arrays of a whole fleet do not fit together."""
    if not sound:
        raise InputError(
            "the run's models are damaged: their parts do not fit together."
        )


def check_finite(sound: bool | np.bool_) -> None:
    """Stop where numbers are none."""
    if not sound:
        raise InputError("models must hold finite numbers.")


def is_sensible(values: AnyArray) -> bool:
    """Whether all are finite and of a sensible size; false also where they are NaN."""
    return bool((np.abs(values) <= LARGE).all())


def is_counts(values: AnyArray, *, least: int) -> bool:
    """Whether these are whole numbers, one after the other."""
    flat = values.ndim == 1 and values.dtype.kind == "i"
    return flat and bool((values >= least).all())
