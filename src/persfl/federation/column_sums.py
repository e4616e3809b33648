"""Sums over columns, which shared units are made of: what a device tells, and what a coordinator
makes of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from persfl.errors import InputError
from persfl.federation.messages import Arrays
from persfl.types import Array, Data
from persfl.wire.codec import WireError
from persfl.wire.models import finite


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


class Totals:
    """The sums of all devices that told any in a usable form."""

    def __init__(self, replies: Iterable[Arrays], width: int) -> None:
        self.weight = 0.0
        self.noises: list[float] = []  # deviations of sums, of devices that noise them
        self.sums = np.zeros(width)
        self.squares = np.zeros(width)
        self.binary = np.ones(width, dtype=bool)
        for arrays in replies:
            try:
                self._add(arrays, width)
            except (WireError, KeyError):
                continue
        if not self.weight:
            raise InputError(
                "no device tells the sums that shared units need. Use --units raw, or allow sums in"
                " a node's policy."
            )

    @property
    def deviation(self) -> float:
        """Of the noise in all sums together; as of devices that are like most of them."""
        if not self.noises:
            return 0.0
        return float(np.median(self.noises) * np.sqrt(len(self.noises)))

    def _add(self, arrays: Arrays, width: int) -> None:
        weight = float(finite(arrays["weight"], (1,))[0])
        sums = finite(arrays["sums"], (width,))
        squares = _squares(arrays["squares"], width)
        noise = float(finite(arrays["noise"], (1,))[0]) if "noise" in arrays else 0.0
        # a number of rows with noise may be below 0
        if arrays["binary"].shape != (width,) or not (weight > 0 or noise > 0):
            return
        self.noises += [noise] if noise > 0 else []
        self.weight += weight
        self.sums = self.sums + sums
        self.squares = self.squares + squares
        self.binary &= arrays["binary"] != 0


def _squares(array: NDArray[Any], width: int) -> Array:
    """Sums of squares may be larger than other numbers."""
    if (
        array.dtype != np.float64
        or array.shape != (width,)
        or not np.isfinite(array).all()
        or (array < 0).any()
    ):
        raise WireError("squares must be finite.")
    return np.asarray(array)
