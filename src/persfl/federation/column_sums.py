"""Sums over columns, which shared units are made of: what a device tells, and what a coordinator
makes of it.

What a device tells is counted where it can be sums over rows. Of three devices or more, nobody's
values count as so far out that they alone make a column much more than ten times as wide as is
usual, and nobody's rows as more than in a blend: a few devices do not choose the units of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from persfl.errors import InputError
from persfl.federation.messages import Arrays
from persfl.learners.storage.named_arrays import LARGE
from persfl.methods.blend.fixed_point import LONG, counted
from persfl.types import Array, Data
from persfl.wire.codec import WireError
from persfl.wire.models import finite

ROUNDING = 1e-7  # of a value: its square is a rounded number


def sums_of(data: Data, about: NDArray[Any] | None) -> dict[str, Array]:
    """Weights, values and squared deviations from `about`, summed per column (the label last)."""
    values = np.column_stack([data.X, data.y])
    width = values.shape[1]
    away = values - (np.zeros(width) if about is None else finite(about, (width,)))
    return {
        "weight": np.array([data.weight.sum()]),
        "sums": data.weight @ away,
        "squares": data.weight @ away**2,
    }


def zeros_and_ones(data: Data) -> dict[str, NDArray[Any]]:
    """Per column (the label last): whether all values are 0 or 1."""
    values = np.column_stack([data.X, data.y])
    return {"binary": ((values == 0) | (values == 1)).all(axis=0).astype(np.int64)}


class ColumnSums(NamedTuple):
    """What one device told; `noise` is the deviation of its noise, or 0."""

    weight: float
    sums: Array
    squares: Array
    binary: NDArray[Any]
    noise: float


class Widest(NamedTuple):
    """Whose values, in which column, and how many times as wide the spread of all is as that of
    the others.
    """

    name: str
    column: int
    times: float


class Totals:
    """The sums of all devices that told any in a usable form; `noised` ones may have noise.

    >>> rows = Data(np.array([[1.0], [3.0]]), np.array([5.0, 7.0]))
    >>> told = sums_of(rows, None) | zeros_and_ones(rows)
    >>> liar = told | {"sums": np.full(2, 1e9), "squares": np.full(2, 1e18)}
    >>> fair = dict.fromkeys("abc", told)
    >>> Totals(fair, 2).mean.tolist()
    [2.0, 6.0]
    >>> every = Totals(fair | {"eve": liar}, 2)
    >>> bool(every.mean.max() < 24), every.farthest().name
    (True, 'eve')
    """

    def __init__(
        self, replies: Mapping[str, Arrays], width: int, noised: bool = False
    ) -> None:
        told = []
        self._names: list[str] = []
        for name, arrays in replies.items():
            try:
                told.append(_read(arrays, width, noised))
            except (WireError, KeyError):
                continue
            self._names.append(name)
        if not told:
            raise InputError(
                "no device tells the sums that shared units need. Use --units raw, or allow sums in"
                " a node's policy."
            )
        self.binary = np.all([one.binary != 0 for one in told], axis=0)
        self._told = told

    @property
    def mean(self) -> Array:
        """(columns,) of all rows."""
        weight, share = self._weights()
        sums = self._stacked("sums") * share[:, None]
        if len(weight) > 2:
            each = sums / weight[:, None]
            middle, most = self._usual()
            near = middle + np.clip(each - middle, -most, most)
            far = np.abs(each - middle) > most
            sums = np.where(far, near * weight[:, None], sums)
        return np.asarray(sums.sum(axis=0) / weight.sum())

    @property
    def spread(self) -> Array:
        """(columns,) root mean squares of all rows, about what they were asked about."""
        weight, share = self._weights()
        squares = self._stacked("squares") * share[:, None]
        if len(weight) > 2:
            middle, most = self._usual()
            farthest = np.abs(middle) + most
            squares = np.minimum(squares, weight[:, None] * farthest**2)
        return np.asarray(np.sqrt(squares.sum(axis=0) / weight.sum()))

    def farthest(self, labels: bool = True) -> Widest:
        """Whose values widen the spread of all most, in a column that is not of zeros and ones;
        with the label's, or without.
        """
        weight, _ = self._weights()
        _, distance = self._distances()
        most = _farthest(distance)
        squares = weight[:, None] * np.minimum(distance, most) ** 2
        every = squares.sum(axis=0) / weight.sum()
        others = np.maximum(squares.sum(axis=0) - squares, 0.0)
        rest = weight.sum() - weight
        without = others / np.where(rest > 0, rest, 1.0)[:, None]
        # rounding is no spread: where nobody else's values differ, nobody is widened
        there = (without > ROUNDING**2 * every) & ~self.binary
        wider = np.ones_like(squares)
        np.divide(np.broadcast_to(every, there.shape), without, out=wider, where=there)
        wider = wider if labels else wider[:, :-1]
        who, column = np.unravel_index(np.argmax(wider), wider.shape)
        found = float(np.sqrt(wider[who, column]))
        return Widest(self._names[int(who)], int(column), found)

    def within(self, half: Array) -> tuple[Array, float]:
        """(2 columns + 1,) rows, sums and sums of squares of all, in units of ranges of which
        `half` is half; and the deviation of the noise in them.
        """
        told = self._told
        rows = np.array([one.weight for one in told])
        noises = np.array([one.noise for one in told if one.noise > 0])
        usual = float(np.median(noises)) if len(noises) else 0.0
        sums = self._stacked("sums") / half
        squares = self._stacked("squares") / half**2
        every = np.column_stack([rows, sums, squares])
        # values are within their ranges: no sum is larger than a number of rows
        most = LONG * max(float(np.median(rows)), usual) if len(told) > 2 else np.inf
        total = np.clip(every, -most, most).sum(axis=0)
        return np.asarray(total), usual * float(np.sqrt(len(noises)))

    def _stacked(self, name: str) -> Array:
        """(devices, columns) the sums or squares of all."""
        return np.stack([one._asdict()[name] for one in self._told])

    def _weights(self) -> tuple[Array, Array]:
        """(devices,) what rows count as, and as which share of what was told."""
        told = np.array([one.weight for one in self._told])
        weight = counted(told)
        return weight, weight / told

    def _usual(self) -> tuple[Array, Array]:
        """(columns,) the middle of devices' means, and how far from it anybody's values count."""
        middle, distance = self._distances()
        return middle, _farthest(distance)

    def _distances(self) -> tuple[Array, Array]:
        """(columns,) the middle of devices' means; (devices, columns) how far values are from
        it.
        """
        weight = np.array([one.weight for one in self._told])[:, None]
        square = self._stacked("squares") / weight
        mean = self._stacked("sums") / weight
        middle = np.median(mean, axis=0)
        apart = np.maximum(square - 2.0 * middle * mean + middle**2, 0.0)
        return middle, np.maximum(np.sqrt(apart), ROUNDING * np.sqrt(square))


def _farthest(distance: Array) -> Array:
    """(columns,) how far from the middle values count as being: so far that one of so many with as
    many rows would make the column ten times as wide; a hundred usual distances at most.

    >>> _farthest(np.ones((4, 1))).tolist(), _farthest(np.ones((200, 1))).tolist()
    ([20.0], [100.0])
    """
    many = min(len(distance), LONG**2)
    return np.asarray(LONG * np.sqrt(many) * _above_nothing(distance))


def _above_nothing(distance: Array) -> Array:
    """(columns,) the middle of the distances above 0, of two the longer.

    >>> _above_nothing(np.array([[0.0], [0.0], [3.0], [4.0], [900.0]])).tolist()
    [4.0]
    """
    there = (distance > 0).sum(axis=0)
    place = len(distance) - there + there // 2
    last = np.minimum(place, len(distance) - 1)
    return np.asarray(np.take_along_axis(np.sort(distance, axis=0), last[None], 0)[0])


def _read(arrays: Arrays, width: int, noised: bool) -> ColumnSums:
    """What a device told, if it can be sums over rows, or such sums with noise."""
    weight = float(finite(arrays["weight"], (1,))[0])
    sums = finite(arrays["sums"], (width,))
    noise = 0.0
    if noised and "noise" in arrays:
        noise = float(finite(arrays["noise"], (1,))[0])
    found = ColumnSums(weight, sums, arrays["squares"], arrays["binary"], noise)
    squares = found.squares
    if squares.dtype != np.float64 or {squares.shape, found.binary.shape} != {(width,)}:
        raise WireError("squares must be numbers, one for each column.")
    # sums of squares may be larger than other numbers
    largest = max(abs(weight), noise) * LARGE**2
    if not ((squares >= 0) & (squares <= largest)).all():
        raise WireError("squares must be those of sensible numbers.")
    # Cauchy and Schwarz; with noise there may even seem to be fewer rows than none
    possible = sums**2 <= (1.0 + ROUNDING) * weight * squares + 1e-300
    if not noise > 0 and not (weight > 0 and possible.all()):
        raise WireError("these are no sums over rows.")
    return found
