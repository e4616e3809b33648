"""Devices: the rows of many devices, one after the other in one array.

A device's rows are a slice, so unequal numbers of rows cost no padding, a table becomes a fleet
without a copy per device, and a compiled kernel reads any device's rows where they lie.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Protocol, overload, runtime_checkable

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from persfl.checks import some, stranger
from persfl.device_checks import (
    data_of,
    refuse_unusable,
    refuse_widths,
    shared_columns,
    warn_of_thin,
)
from persfl.errors import InputError
from persfl.types import Array, Data, IntArray, Source


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
        self.X = X
        self.y = y
        self.weight = weight
        self.start = start
        self.ids = ids
        self.columns = columns
        self.clusters = clusters
        self.true_weights = true_weights
        self.label = "y"  # what the label is called in messages

    @staticmethod
    def of(
        items: object,
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
            ids = list(items)
            items = list(items.values())
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
        if not items:
            raise InputError("a fleet needs at least one device. Got none.")
        columns = shared_columns(items, ids)
        rows = [
            data_of(item, name, columns) for item, name in zip(items, ids, strict=True)
        ]
        refuse_widths(rows, ids)
        devices = Devices(
            np.concatenate([data.X for data in rows]),
            np.concatenate([data.y for data in rows]),
            np.concatenate([data.weight for data in rows]),
            offsets([data.rows for data in rows]),
            ids,
            columns=columns,
        )
        devices.check(quiet=quiet, empty=empty)
        return devices

    @staticmethod
    def grouped(
        X: Array,
        y: Array,
        owner: IntArray,
        ids: Sequence[Hashable],
        *,
        weight: Array | None = None,
        columns: Sequence[str] | None = None,
        clusters: IntArray | None = None,
    ) -> Devices:
        """Devices from rows in any order; `owner` says for each which device's it is, -1 nobody's.

        >>> rows = Devices.grouped(
        ...     np.eye(3), np.arange(3.0), np.array([1, -1, 0]), "ab"
        ... )
        >>> rows.counts.tolist(), rows.y.tolist()
        ([1, 1], [2.0, 0.0])
        """
        order = np.argsort(owner, kind="stable")[np.count_nonzero(owner < 0) :]
        weight = np.ones(len(y)) if weight is None else weight
        return Devices(
            np.ascontiguousarray(X[order]),
            y[order],
            weight[order],
            offsets(np.bincount(owner[order], minlength=len(ids))),
            ids,
            columns=columns,
            clusters=clusters,
        )

    @staticmethod
    def joined(
        parts: Sequence[Devices], ids: Sequence[Hashable] | None = None
    ) -> Devices:
        """Devices that were checked before, one after the other."""
        counts = np.concatenate([part.counts for part in parts])
        return Devices(
            np.concatenate([part.X for part in parts]),
            np.concatenate([part.y for part in parts]),
            np.concatenate([part.weight for part in parts]),
            offsets(counts),
            plain_ids(ids, len(counts)),
        )

    def check(self, *, quiet: bool = False, empty: bool = False) -> None:
        """Raise an InputError for data that cannot be used; warn about data that is thin."""
        refuse_unusable(self, empty=empty)
        if not quiet:
            warn_of_thin(self)

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

    def index(self, device: object, *_: int) -> int:
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


def offsets(counts: ArrayLike) -> IntArray:
    """Where each device's rows begin, and after the last one where they end.

    >>> offsets([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def position(ids: Sequence[Hashable], device: object) -> int:
    """Where a device id stands among the ids, or an InputError that names some that are known."""
    if isinstance(ids, range) and isinstance(device, np.integer):
        device = int(device)  # a range finds an int at once, anything else by walking
    try:
        return ids.index(device)
    except (ValueError, TypeError):
        raise InputError(
            f"there is no device {device!r}. Known: {some(ids)}."
        ) from None


def plain_ids(ids: Iterable[Hashable] | None, count: int) -> Sequence[Hashable]:
    """Ids as a list of plain values (0 to count - 1 where there are none)."""
    if ids is None:
        return range(count)
    if isinstance(ids, (list, range)):
        return ids
    if isinstance(ids, (np.ndarray, pd.Series, pd.Index)):
        return list(ids.tolist())
    return list(ids)


@runtime_checkable
class NamedDevices(Protocol):
    """A source, or devices, with ids."""

    @property
    def ids(self) -> Sequence[Hashable]: ...


@runtime_checkable
class ReceiptTaker(Protocol):
    """A source that wants to know which rounds were taken."""

    def accepted(self, r: int) -> None:
        """The fleet has taken round `r`."""


def ids_of(source: Source | Devices) -> Sequence[Hashable]:
    """The device ids of a source or of devices; a plain function is asked for round 0 to count
    them.
    """
    if isinstance(source, NamedDevices):
        return plain_ids(source.ids, 0)
    now = source(0)
    return plain_ids(now.ids if isinstance(now, NamedDevices) else None, len(now))
