"""Rows of many devices in a NumPy archive: `X` (rows, features), `y` (rows,) and `group`
(rows,), whose row it is.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from persfl.checks import numbers
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.sources.table import device_codes
from persfl.sources.unpacking import read_arrays


def read_archive(path: str | Path) -> tuple[Devices, int]:
    """Devices, sorted by id, and how many classes their labels have; 0 where labels are numbers.

    Whole numbers are classes, unless the archive has a `task` that says "reg"; they are then
    counted from 0 in their order.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(
    ...         f"{folder}/rows.npz",
    ...         X=[[1.0], [2.0], [3.0]],
    ...         y=[7, 5, 7],
    ...         group=["b", "a", "b"],
    ...     )
    ...     devices, classes = read_archive(f"{folder}/rows.npz")
    >>> devices.ids, devices.y.tolist(), classes
    (['a', 'b'], [0.0, 1.0, 1.0], 2)
    """
    path = Path(path)
    found = read_arrays(path, ("X", "y", "group", "task"))
    absent = [name for name in ("X", "y", "group") if name not in found]
    if absent:
        raise InputError(
            f"{path.name!r} must hold X, y and group. It has no {absent[0]!r}."
        )
    y = found["y"]
    where = f"{{}} of {path.name!r}"
    classes = 0
    if y.dtype.kind in "iub" and str(found.get("task", "")) != "reg":
        names, y = np.unique(y, return_inverse=True)
        classes = len(names)
    X = numbers(found["X"], where=where.format("X"), axes=2)
    y = numbers(y, where=where.format("y"), axes=1)
    if len(X) != len(y):
        raise InputError(
            f"{path.name!r} must have one label per row. Got {len(X)} rows and {len(y)} labels."
        )
    codes, ids = device_codes(found["group"], len(y), where=where.format("group"))
    devices = Devices.grouped(X, y, codes, ids)
    devices.check(quiet=True)
    return devices, classes
