"""Checks of devices' rows. Each failure is one sentence that names the device."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from persfl.checks import numbers, some, those
from persfl.errors import InputError, PersflWarning
from persfl.types import Array, Data, Mask

if TYPE_CHECKING:
    from persfl.devices import Devices


def refuse_unusable(devices: Devices, *, empty: bool) -> None:
    """Stop where rows cannot be used; `empty` allows devices without rows."""
    _refuse_ids(devices.ids)
    counts = devices.counts
    weight = devices.weight
    if not empty:
        refuse_rowless(devices)
    for what, values in (("X", devices.X), ("y", devices.y), ("weight", weight)):
        _refuse_endless(devices, what, values)
    if (weight < 0).any():
        who = np.bincount(devices.owner[weight < 0], minlength=len(devices)) > 0
        raise InputError(
            f"{_those(devices, who)} a negative weight. Weights must be at least 0."
        )
    light = (devices.total <= 0) & (counts > 0)
    if light.any():
        raise InputError(
            f"{_those(devices, light)} only rows of weight 0. Give one a weight."
        )


def refuse_rowless(devices: Devices) -> None:
    """Stop where a device has no rows."""
    none = devices.counts == 0
    if none.any():
        raise InputError(
            f"{_those(devices, none)} no rows. Give it at least one, or leave it out."
        )


def _refuse_endless(devices: Devices, what: str, values: Array) -> None:
    """Stop where a value is missing or infinite, saying where the first of them is."""
    wrong = ~np.isfinite(values)
    if not wrong.any():
        return
    place = devices.label if what == "y" else what
    row, *column = (int(i) for i in np.argwhere(wrong)[0])
    if column:
        place = f"column {_column(devices, column[0])!r}"
    device = int(np.searchsorted(devices.start, row, side="right")) - 1
    missing = np.isnan(values[(row, *column)])
    value = "a missing value (NaN)" if missing else "an infinite value"
    raise InputError(
        f"device {devices.ids[device]!r} has {value} in {place}, row"
        f" {row - int(devices.start[device])} ({int(wrong.sum())} such values in all). Fill it in"
        " or drop those rows."
    )


def warn_of_thin(devices: Devices) -> None:
    """Warn of devices with a single row, and of columns that say nothing."""
    single = devices.counts == 1
    if single.any() and len(devices) > 1:
        warnings.warn(
            f"{_those(devices, single)} a single row: too little to score answers by, and where"
            " answers travel, one of them gives the row away.",
            PersflWarning,
            stacklevel=4,
        )
    if len(devices.X) > 1:
        same = np.flatnonzero((devices.X[0] == devices.X).all(axis=0)).tolist()
        if same:
            names = [_column(devices, column) for column in same]
            warnings.warn(
                f"{those(names, 'has', 'have', thing='column')} the same value in every row of"
                " every device. Drop it; for a constant term use intercept=True.",
                PersflWarning,
                stacklevel=4,
            )


def _column(devices: Devices, number: int) -> int | str:
    return number if devices.columns is None else devices.columns[number]


def _those(devices: Devices, which: Mask) -> str:
    ids = [devices.ids[i] for i in np.flatnonzero(which).tolist()]
    return those(ids, "has", "have")


def refuse_widths(rows: Sequence[Data], ids: Sequence[Hashable]) -> None:
    """Stop where devices differ in how many features they have."""
    widths = [data.X.shape[1] for data in rows]
    for name, width in zip(ids, widths, strict=True):
        if width != widths[0]:
            raise InputError(
                f"every device must have the same columns: device {ids[0]!r} has {widths[0]}"
                f" and device {name!r} has {width}. Give each the same features in the same"
                " order."
            )


def shared_columns(
    items: Sequence[object], ids: Sequence[Hashable]
) -> list[str] | None:
    """The column names, where the first device's X is a DataFrame; all devices must then have
    the same.
    """
    frames = [
        item[0] if isinstance(item, (tuple, list)) and item else None for item in items
    ]
    if not frames or not isinstance(frames[0], pd.DataFrame):
        return None
    names = list(frames[0].columns)
    for name, frame in zip(ids, frames, strict=True):
        if isinstance(frame, pd.DataFrame) and set(frame.columns) != set(names):
            other = sorted(set(map(str, frame.columns)) ^ set(map(str, names)))
            raise InputError(
                f"every device must have the same columns: device {name!r} differs in"
                f" {some(other)}."
            )
    return names


def data_of(item: object, name: Hashable, columns: list[str] | None) -> Data:
    """One device's rows from what somebody handed in."""
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
    weight = np.ones(len(y))
    if len(item) == 3 and item[2] is not None:
        weight = numbers(item[2], where=f"weight of device {name!r}", axes=1)
    if not len(X) == len(y) == len(weight):
        raise InputError(
            f"device {name!r} must have one label and weight per row. Got {len(X)} rows, {len(y)}"
            f" labels, {len(weight)} weights."
        )
    return Data(X, y, weight)


def _refuse_ids(ids: Sequence[Hashable]) -> None:
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
