"""Checks of what people hand in. Each failure is one sentence: what is wrong, where, and what
to do.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from numbers import Integral, Real
from typing import TypeVar

import numpy as np

from persfl.errors import InputError
from persfl.types import Array, IntArray

T = TypeVar("T", bound=Hashable)
LARGEST = 1e100  # of a number in a table: sums of squares and cubes stay finite


def whole(
    name: str, value: object, *, least: int, most: int | None = None, why: str = ""
) -> int:
    """A whole number within bounds.

    >>> whole("peers", 30, least=1, most=17, why="18 devices")
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: peers must be at most 17 (18 devices). Got 30.
    """
    note = f" ({why})" if why else ""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InputError(f"{name} must be a whole number. Got {value!r}.")
    number = int(value)
    if number < least:
        raise InputError(f"{name} must be at least {least}. Got {number}.")
    if most is not None and number > most:
        raise InputError(f"{name} must be at most {most}{note}. Got {number}.")
    return number


def real(
    name: str,
    value: object,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    above: float | None = None,
) -> float:
    """A finite number within bounds.

    >>> real("step_size", -1, above=0)
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: step_size must be greater than 0. Got -1.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, Real)
        or not math.isfinite(value)
    ):
        raise InputError(f"{name} must be a finite number. Got {value!r}.")
    number = float(value)
    if above is not None and not number > above:
        raise InputError(f"{name} must be greater than {above:g}. Got {value}.")
    if number < least:
        raise InputError(f"{name} must be at least {least:g}. Got {value}.")
    if number > most:
        raise InputError(f"{name} must be at most {most:g}. Got {value}.")
    return number


def one_of(name: str, value: object, known: Sequence[str]) -> str:
    """One of a few words.

    >>> one_of("loss", "huger", ["squared", "huber"])
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: loss must be one of 'squared', 'huber'. Got 'huger'.
    """
    if value not in known:
        raise InputError(
            f"{name} must be one of {', '.join(map(repr, known))}. Got {value!r}."
        )
    return str(value)


def numbers(value: object, *, where: str, axes: int) -> Array:
    """A float64 array with this many axes, or an error that says where text or a wrong shape was
    found.

    >>> numbers([["a", 1]], where="X of device 3", axes=2)
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: X of device 3 must hold numbers. Got text: 'a'. Encode it as numbers
    or leave it out.
    """
    try:
        array = np.asarray(value)
        if array.dtype == object or array.dtype.kind not in "fiub":
            array = np.asarray(value, dtype=object)
            wrong = next(
                (v for v in array.ravel() if isinstance(v, (str, bytes))), None
            )
            if wrong is not None:
                raise InputError(
                    f"{where} must hold numbers. Got text: {wrong!r}. Encode it as numbers or leave"
                    " it out."
                )
        array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{where} must hold numbers in a rectangle. Got something else: {error}."
        ) from error
    if array.ndim != axes:
        need = (
            "rows and columns (2 axes)" if axes == 2 else "one value per row (1 axis)"
        )
        raise InputError(f"{where} must have {need}. Got shape {array.shape}.")
    return np.ascontiguousarray(array)


def stranger(index: int, n: int) -> InputError:
    """A sampler or an adopter named a device that is not there."""
    return InputError(
        f"peers must be device indices below {n}, or -1 for nobody. Got {index}."
    )


def refuse_strangers(peers: IntArray, n: int) -> None:
    """Stop where somebody is named who is not there."""
    if peers.max(initial=-1) >= n:
        raise stranger(int(peers.max()), n)


def many(count: int, thing: str) -> str:
    """How many there are, with the noun as it should be.

    >>> many(1, "device"), many(1200, "row")
    ('1 device', '1,200 rows')
    """
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def percent(share: float, digits: int = 0) -> str:
    """A share for a sentence.

    >>> percent(0.314), percent(-0.02), percent(0.0314, digits=1)
    ('31 %', '−2 %', '3.1 %')
    """
    size = f"{abs(100 * share):.{digits}f}"
    return f"{'−' if share < 0 and float(size) else ''}{size} %"  # noqa: RUF001


def those(
    items: Sequence[object],
    one: str,
    several: str,
    *,
    thing: str = "device",
    most: int = 3,
) -> str:
    """A few items and what is said of them, with noun and verb as they should be.

    >>> those(["a"], "has", "have"), those(["a", "b"], "has", "have")
    ("device 'a' has", "devices 'a', 'b' have")
    """
    return f"{named(items, thing, most)} {one if len(items) == 1 else several}"


def repeated(items: Iterable[T]) -> list[T]:
    """What stands there more than once, each once.

    >>> repeated(["age", "sex", "age", "age"])
    ['age']
    """
    return [one for one, count in Counter(items).items() if count > 1]


def named(items: Sequence[object], thing: str, most: int = 3) -> str:
    """A few items with their noun.

    >>> named(["age"], "column"), named(["age", "sex"], "column")
    ("column 'age'", "columns 'age', 'sex'")
    """
    return f"{thing}{'' if len(items) == 1 else 's'} {some(items, most)}"


def some(items: Sequence[object], most: int = 3) -> str:
    """A few items and how many more there are.

    >>> some(["a", "b", "c", "d", "e"])
    "'a', 'b', 'c' and 2 more"
    """
    shown = ", ".join(repr(item) for item in list(items[:most]))
    return shown + (f" and {len(items) - most} more" if len(items) > most else "")
