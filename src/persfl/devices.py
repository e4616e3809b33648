"""Devices: the rows of many devices, one after the other in one array.

A device's rows are a slice, so unequal numbers of rows cost no padding, a table becomes a fleet
without a copy per device, and a compiled kernel reads any device's rows where they lie.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np
import pandas as pd

from persfl.checks import numbers, some, those
from persfl.errors import InputError, PersflWarning
from persfl.types import Array, Data, IntArray


class Devices(Sequence[Data]):
    """A sequence of `Data`, one per device, that also knows the devices' ids.

    Made by `Devices.of` from lists of arrays, by `persfl.sources.from_table` from a table, or by a
    generator such as
    `persfl.sources.clustered_regression`, which also sets `clusters` and `true_weights` (one entry
    per device).

    >>> devices = Devices.of(
    ...     {"ann": ([[1.0], [2.0]], [1.0, 2.0]), "bob": ([[3.0]], [3.0])}, quiet=True
    ... )
    >>> len(devices), devices.ids, devices[1].X.tolist()
    (2, ['ann', 'bob'], [[3.0]])
    """

    def __init__(
        self,
        X: Array,
        y: Array,
        weight: Array,
        start: IntArray,
        ids: Sequence[Hashable],
        *,
        columns: Sequence[str] | None = None,
        clusters: IntArray | None = None,
        true_weights: Array | None = None,
    ) -> None:
        self.X, self.y, self.weight, self.start, self.ids = X, y, weight, start, ids
        self.columns, self.clusters, self.true_weights = columns, clusters, true_weights
        self.label = "y"  # what the label is called in messages

    @staticmethod
    def of(
        items: Any,
        *,
        ids: Sequence[Hashable] | None = None,
        quiet: bool = False,
        empty: bool = False,
    ) -> Devices:
        """Devices from a list of `Data`, `(X, y)` or `(X, y, weight)`, or from a dict of id to one
        of these.

        `quiet` leaves out the warnings about thin data; `empty` allows devices without rows
        (streams that have not begun).
        """
        if isinstance(items, Devices):
            return items
        if isinstance(items, pd.DataFrame):
            raise InputError(
                "a table becomes devices by persfl.sources.from_table(table, device=...,"
                " label=...)."
            )
        if isinstance(items, Mapping):
            ids, items = list(items), list(items.values())
        if isinstance(items, (str, bytes)) or not isinstance(items, Iterable):
            raise InputError(
                "devices must be a list of (X, y), a dict of id to (X, y), or Devices. Got"
                f" {type(items).__name__}."
            )
        items = list(items)
        ids = plain_ids(ids, len(items))
        if len(ids) != len(items):
            raise InputError(
                f"ids must name each of the {len(items)} devices. Got {len(ids)} ids."
            )
        columns = _columns(items, ids)
        rows = [
            _data(item, name, columns) for item, name in zip(items, ids, strict=True)
        ]
        if not rows:
            raise InputError("a fleet needs at least one device. Got none.")
        widths = [data.X.shape[1] for data in rows]
        for name, width in zip(ids, widths, strict=True):
            if width != widths[0]:
                raise InputError(
                    f"every device must have the same columns: device {ids[0]!r} has {widths[0]}"
                    f" and device {name!r} has {width}. Give each the same features in the same"
                    " order."
                )
        start = offsets([data.rows for data in rows])
        devices = Devices(
            np.concatenate([data.X for data in rows]),
            np.concatenate([data.y for data in rows]),
            np.concatenate([data.weight for data in rows]),
            start,
            ids,
            columns=columns,
        )
        devices.check(quiet=quiet, empty=empty)
        return devices

    @staticmethod
    def joined(
        parts: Sequence[Devices], ids: Sequence[Hashable] | None = None
    ) -> Devices:
        """Devices that were checked before, one after the other."""
        counts = np.concatenate([part.counts for part in parts])
        X, y, weight = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("X", "y", "weight")
        )
        return Devices(X, y, weight, offsets(counts), plain_ids(ids, len(counts)))

    def check(self, *, quiet: bool = False, empty: bool = False) -> None:
        """Raise an InputError for data that cannot be used; warn about data that is thin."""
        _check_ids(self.ids)
        if not empty and (self.counts == 0).any():
            raise InputError(
                f"{self._named(self.counts == 0, 'has', 'have')} no rows. Give it at least one, or"
                " leave it out."
            )
        for what, values in (("X", self.X), ("y", self.y), ("weight", self.weight)):
            self._check_finite(what, values)
        if (self.weight < 0).any():
            who = self._named(self._of_rows(self.weight < 0), "has", "have")
            raise InputError(f"{who} a negative weight. Weights must be at least 0.")
        if (self.total[self.counts > 0] <= 0).any():
            who = self._named((self.total <= 0) & (self.counts > 0), "has", "have")
            raise InputError(f"{who} only rows of weight 0. Give one a weight.")
        if not quiet:
            self._warn()

    def _check_finite(self, what: str, values: Array) -> None:
        wrong = ~np.isfinite(values)
        if not wrong.any():
            return
        row, *column = (int(i) for i in np.argwhere(wrong)[0])
        device = int(np.searchsorted(self.start, row, side="right")) - 1
        value = (
            "a missing value (NaN)"
            if np.isnan(values[(row, *column)])
            else "an infinite value"
        )
        place = (
            f"column {self._column(column[0])!r}"
            if column
            else self.label
            if what == "y"
            else what
        )
        raise InputError(
            f"device {self.ids[device]!r} has {value} in {place}, row"
            f" {row - int(self.start[device])} ({int(wrong.sum())} such values in all). Fill it in"
            " or drop those rows."
        )

    def _warn(self) -> None:
        single = self.counts == 1
        if single.any() and len(self) > 1:
            warnings.warn(
                f"{self._named(single, 'has', 'have')} a single row: too little to score answers"
                " by, and where answers travel, one of them gives the row away.",
                PersflWarning,
                stacklevel=4,
            )
        if len(self.X) > 1:
            same = np.flatnonzero((self.X[0] == self.X).all(axis=0)).tolist()
            if same:
                warnings.warn(
                    f"{those([self._column(c) for c in same], 'has', 'have', thing='column')} the"
                    " same value in every row of every device. Drop it; for a constant term use"
                    " intercept=True.",
                    PersflWarning,
                    stacklevel=4,
                )

    def _column(self, number: int) -> Any:
        return number if self.columns is None else self.columns[number]

    def _of_rows(self, mask: Any) -> Any:
        return np.bincount(self.owner[mask], minlength=len(self)) > 0

    def _named(self, mask: Any, one: str, several: str) -> str:
        return those([self.ids[i] for i in np.flatnonzero(mask).tolist()], one, several)

    @cached_property
    def counts(self) -> IntArray:
        """Rows per device."""
        return np.diff(self.start)

    @cached_property
    def owner(self) -> IntArray:
        """For each row the position of its device."""
        return np.repeat(np.arange(len(self)), self.counts)

    @cached_property
    def total(self) -> Array:
        """Sum of weights per device."""
        return np.asarray(
            np.bincount(self.owner, weights=self.weight, minlength=len(self)),
            dtype=np.float64,
        )

    @property
    def features(self) -> int:
        return int(self.X.shape[1])

    def __len__(self) -> int:
        return len(self.start) - 1

    @overload
    def __getitem__(self, device: int) -> Data: ...
    @overload
    def __getitem__(self, device: slice) -> Sequence[Data]: ...
    def __getitem__(self, device: int | slice) -> Data | Sequence[Data]:
        if isinstance(device, slice):
            return [self[i] for i in range(*device.indices(len(self)))]
        i = int(device) + (len(self) if device < 0 else 0)
        if not 0 <= i < len(self):
            raise IndexError(f"there are {len(self)} devices. Got index {device}.")
        rows = slice(int(self.start[i]), int(self.start[i + 1]))
        return Data(self.X[rows], self.y[rows], self.weight[rows])

    def __repr__(self) -> str:
        return f"Devices({len(self)} devices, {len(self.X)} rows, {self.features} features)"

    def index(self, device: Any, *_: Any) -> int:
        """The position of a device id.

        >>> Devices.of({"ann": ([[1.0]], [1.0])}).index("bob")
        Traceback (most recent call last):
        ...
        persfl.errors.InputError: there is no device 'bob'. Known: 'ann'.
        """
        return position(self.ids, device)

    def gather(self, which: IntArray) -> Data:
        """The rows of these devices as one padded batch: leading axes as `which`; -1 is nobody
        (one row of weight 0).
        """
        if which.max(initial=-1) >= len(self):
            raise stranger(int(which.max()), len(self))
        lo = np.where(which >= 0, self.start[which], 0)
        count = np.where(which >= 0, self.counts[which], 0)
        slot = np.arange(max(1, int(count.max(initial=0))))
        real = slot < count[..., None]
        rows = np.where(real, lo[..., None] + slot, 0)
        return Data(self.X[rows], self.y[rows], np.where(real, self.weight[rows], 0.0))


def offsets(counts: Any) -> IntArray:
    """Where each device's rows begin, and after the last one where they end.

    >>> offsets([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def stranger(index: int, n: int) -> InputError:
    """A sampler or an adopter named a device that is not there."""
    return InputError(
        f"peers must be device indices below {n}, or -1 for nobody. Got {index}."
    )


def position(ids: Sequence[Hashable], device: Any) -> int:
    """Where a device id stands among the ids, or an InputError that names some that are known."""
    if isinstance(ids, range) and isinstance(device, np.integer):
        device = int(device)  # a range finds an int at once, anything else by walking
    try:
        return ids.index(device)
    except (ValueError, TypeError):
        raise InputError(
            f"there is no device {device!r}. Known: {some(ids)}."
        ) from None


def plain_ids(ids: Any, count: int) -> Sequence[Hashable]:
    """Ids as a list of plain values (0 to count - 1 where there are none)."""
    if ids is None:
        return range(count)
    return (
        ids
        if isinstance(ids, (list, range))
        else list(ids.tolist() if hasattr(ids, "tolist") else ids)
    )


def _columns(items: Sequence[Any], ids: Sequence[Hashable]) -> list[str] | None:
    """The column names, where the first device's X is a DataFrame; all devices must then have
    the same.
    """
    frames = [
        (
            item[0]
            if isinstance(item, (tuple, list))
            and item
            and isinstance(item[0], pd.DataFrame)
            else None
        )
        for item in items
    ]
    if not frames or frames[0] is None:
        return None
    names = list(frames[0].columns)
    for name, frame in zip(ids, frames, strict=True):
        if frame is not None and set(frame.columns) != set(names):
            other = sorted(set(map(str, frame.columns)) ^ set(map(str, names)))
            raise InputError(
                f"every device must have the same columns: device {name!r} differs in"
                f" {some(other)}."
            )
    return names


def _data(item: Any, name: Hashable, columns: list[str] | None = None) -> Data:
    if isinstance(item, Data):
        item = (item.X, item.y, item.weight)
    if not isinstance(item, (tuple, list)) or len(item) not in (2, 3):
        raise InputError(
            f"device {name!r} must be (X, y), (X, y, weight) or Data. Got {type(item).__name__}."
        )
    if isinstance(item[0], pd.DataFrame):
        frame = item[0] if columns is None else item[0][columns]
        text = [c for c in frame.columns if not pd.api.types.is_numeric_dtype(frame[c])]
        if text:
            raise InputError(
                f"column {text[0]!r} of device {name!r} must hold numbers. Got"
                f" {frame[text[0]].iloc[:1].tolist()}. Encode it."
            )
        item = (frame.to_numpy(dtype=np.float64, na_value=np.nan), *item[1:])
    X = numbers(item[0], where=f"X of device {name!r}", axes=2)
    y = numbers(item[1], where=f"y of device {name!r}", axes=1)
    weight = (
        np.ones(len(y))
        if len(item) == 2 or item[2] is None
        else numbers(item[2], where=f"weight of device {name!r}", axes=1)
    )
    if not len(X) == len(y) == len(weight):
        raise InputError(
            f"device {name!r} must have one label and weight per row. Got {len(X)} rows, {len(y)}"
            f" labels, {len(weight)} weights."
        )
    return Data(X, y, weight)


def _check_ids(ids: Sequence[Hashable]) -> None:
    if isinstance(ids, range):
        return
    seen: set[Hashable] = set()
    for name in ids:
        if not isinstance(name, Hashable):
            raise InputError(
                f"device ids must be plain values such as text or numbers. Got {name!r}."
            )
        if name in seen:
            raise InputError(f"device ids must differ. Got {name!r} twice.")
        seen.add(name)
