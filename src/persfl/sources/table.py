"""A table in which one column says whose row it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from persfl.checks import some
from persfl.devices import Devices, offsets
from persfl.errors import InputError, need


def from_table(
    table: pd.DataFrame, *, device: str, label: str, features: Sequence[str] | None = None, weight: str | None = None
) -> Devices:
    """Devices from a DataFrame; rows keep their order inside a device, devices are sorted by id.

    `features` defaults to all other columns, which must then be numbers.

    >>> table = pd.DataFrame({"who": ["b", "a", "b", "a"], "x": [1.0, 2.0, 3.0, 4.0], "y": [0.0, 1.0, 0.0, 1.0]})
    >>> devices = from_table(table, device="who", label="y")
    >>> devices.ids, devices[1].X.ravel().tolist()
    (['a', 'b'], [1.0, 3.0])
    """
    if not isinstance(table, pd.DataFrame):
        raise InputError(f"table must be a pandas DataFrame (or use read_table for a file). Got {type(table).__name__}.")
    special = [device, label] + ([weight] if weight else [])
    columns = [c for c in table.columns if c not in special] if features is None else list(features)
    unknown = [c for c in [*special, *columns] if c not in table.columns]
    if unknown:
        raise InputError(f"the table has no column {some(unknown)}. Its columns: {some(list(table.columns), 10)}.")
    if label == device or label in columns or device in columns:
        raise InputError(f"device {device!r} and label {label!r} must be two columns, and neither of them a feature.")
    double = [c for c in [*special, *columns] if list(table.columns).count(c) > 1]
    if double:
        raise InputError(f"column names must differ. Got {double[0]!r} more than once.")
    if not columns:
        raise InputError("the table has no feature columns beside the device and the label. Add at least one.")
    if not len(table):
        raise InputError("the table has no rows.")
    missing = int(table[device].isna().sum())
    if missing:
        raise InputError(
            f"column {device!r} must say whose row it is; {missing} rows leave it empty. Fill it in or drop those rows."
        )
    try:
        codes, ids = pd.factorize(table[device], sort=True)
    except TypeError:
        raise InputError(f"column {device!r} must hold plain ids of one kind, such as text or numbers.") from None
    order = np.argsort(codes, kind="stable")
    start = offsets(np.bincount(codes, minlength=len(ids)))
    X = np.column_stack([_numbers(table, c)[order] for c in columns])
    y = _numbers(table, label)[order]
    w = _numbers(table, weight)[order] if weight else np.ones(len(y))
    devices = Devices(np.ascontiguousarray(X), y, w, start, list(ids.tolist()), columns=columns)
    devices.label = f"column {label!r}"
    devices.check()
    return devices


def read_table(
    path: str | Path, *, device: str, label: str, features: Sequence[str] | None = None, weight: str | None = None
) -> Devices:
    """Devices from a CSV or Parquet file (Parquet needs the extra `parquet`)."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no file {str(path)!r}.")
    columns = None if features is None else [device, label, *features, *([weight] if weight else [])]
    if path.suffix.lower() in (".parquet", ".pq"):
        need("pyarrow", extra="parquet", why="reading a Parquet file")
        table = _read(pd.read_parquet, path, columns=columns)
    elif path.suffix.lower() in (".csv", ".gz", ".txt"):
        table = _read(pd.read_csv, path)
    else:
        raise InputError(f"{path.name!r} must end in .csv, .csv.gz or .parquet. Got {path.suffix!r}.")
    return from_table(table, device=device, label=label, features=features, weight=weight)


def _read(reader: Any, path: Path, **options: Any) -> pd.DataFrame:
    try:
        return pd.DataFrame(reader(path, **options))
    except Exception as error:
        raise InputError(f"{path.name!r} could not be read: {error}") from error


def _numbers(table: pd.DataFrame, column: str) -> Any:
    values = table[column]
    numeric = pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values)
    if not numeric or pd.api.types.is_complex_dtype(values):
        example = values.dropna().iloc[0] if values.notna().any() else None
        raise InputError(
            f"column {column!r} must hold numbers. Got {values.dtype} such as {example!r}: encode it (pandas.get_dummies) "
            "or leave it out with features=[...]."
        )
    return values.to_numpy(dtype=np.float64, na_value=np.nan)
