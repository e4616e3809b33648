"""A table in which one column says whose row it is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from persfl.checks import LARGEST, many, named, repeated, some
from persfl.devices import Devices
from persfl.errors import InputError, need
from persfl.sources.csv_files import read_csv, told_as_input
from persfl.sources.unpacking import refuse_packed_parquet
from persfl.types import Array, IntArray


def from_table(
    table: pd.DataFrame,
    *,
    device: str,
    label: str,
    features: Sequence[str] | None = None,
    weight: str | None = None,
) -> Devices:
    """Devices from a DataFrame; rows keep their order inside a device, devices are sorted by id.

    `features` defaults to all other columns, which must then be numbers.

    >>> table = pd.DataFrame(
    ...     {
    ...         "who": ["b", "a", "b", "a"],
    ...         "x": [1.0, 2.0, 3.0, 4.0],
    ...         "y": [0.0, 1.0, 0.0, 1.0],
    ...     }
    ... )
    >>> devices = from_table(table, device="who", label="y")
    >>> devices.ids, devices[1].X.ravel().tolist()
    (['a', 'b'], [1.0, 3.0])
    """
    if not isinstance(table, pd.DataFrame):
        raise InputError(
            "table must be a pandas DataFrame (or use read_table for a file). Got"
            f" {type(table).__name__}."
        )
    special = [device, label] + ([weight] if weight else [])
    columns = [name for name in table.columns if name not in special]
    if features is not None:
        columns = list(features)
    _check_columns(table, device, label, special, columns)
    codes, ids = device_codes(table[device], len(table), where=f"column {device!r}")
    devices = Devices.grouped(
        np.column_stack([_numbers(table, name) for name in columns]),
        _numbers(table, label),
        codes,
        ids,
        weight=_numbers(table, weight) if weight else None,
        columns=columns,
    )
    devices.label = f"column {label!r}"
    devices.check()
    return devices


def _check_columns(
    table: pd.DataFrame,
    device: str,
    label: str,
    special: Sequence[str],
    columns: Sequence[str],
) -> None:
    """Stop where a table has not the columns that are asked for, each once, or no rows."""
    known = list(table.columns)
    asked = [*special, *columns]
    there = set(known)
    unknown = [name for name in asked if name not in there]
    if unknown:
        raise InputError(
            f"the table has no {named(unknown, 'column')}. Its columns: {some(known, 10)}."
        )
    if label == device or label in columns or device in columns:
        raise InputError(
            f"device {device!r} and label {label!r} must be two columns, and neither of them a"
            " feature."
        )
    twice = set(repeated(known))
    double = [name for name in asked if name in twice]
    if double:
        raise InputError(f"column names must differ. Got {double[0]!r} more than once.")
    if not columns:
        raise InputError(
            "the table has no feature columns beside the device and the label. Add at least one."
        )
    if not len(table):
        raise InputError("the table has no rows.")


def device_codes(
    devices: object, rows: int, *, where: str = "devices"
) -> tuple[IntArray, list[Any]]:
    """For each row the position of its device among the sorted ids, and those ids as plain values.

    >>> codes, ids = device_codes(["b", "a", "b"], 3)
    >>> codes.tolist(), ids
    ([1, 0, 1], ['a', 'b'])
    """
    try:
        column: Any = devices
        values = column if isinstance(column, pd.Series) else pd.Series(column)
        missing = int(values.isna().sum())
    except Exception:
        raise InputError(
            f"{where} must say for each row whose it is. Got {type(devices).__name__}."
        ) from None
    if len(values) != rows:
        raise InputError(
            f"{where} must say for each of the {rows} rows whose it is. Got {len(values)} entries."
        )
    if missing:
        raise InputError(
            f"{where} must say whose row it is; {missing} rows leave it empty. Fill it in or drop"
            " those rows."
        )
    try:
        codes, ids = pd.factorize(values, sort=True)
        plain = list(ids.tolist())
        if any(left == right for left, right in pairwise(plain)):
            raise TypeError
    except TypeError:
        raise InputError(
            f"{where} must hold plain ids of one kind, such as text or numbers."
        ) from None
    kinds = {type(name) for name in plain}
    if len(kinds) > 1 and len({str(name) for name in plain}) < len(plain):
        raise InputError(
            f"{where} has ids that differ in kind only, such as 1 and '1'. Make them all text or"
            " all numbers."
        )
    return np.asarray(codes, dtype=np.int64), plain


def read_table(
    path: str | Path,
    *,
    device: str,
    label: str,
    features: Sequence[str] | None = None,
    weight: str | None = None,
) -> Devices:
    """Devices from a CSV or Parquet file (Parquet needs the extra `parquet`)."""
    columns = None
    if features is not None:
        columns = [device, label, *features, *([weight] if weight else [])]
    frame = read_frame(path, columns=columns)
    return from_table(
        frame, device=device, label=label, features=features, weight=weight
    )


def read_frame(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    separator: str | None = None,
    decimal: str = ".",
    thousands: str | None = None,
    text: str | None = None,
) -> pd.DataFrame:
    """A CSV or Parquet file as a DataFrame.

    `columns` are the only ones needed, `separator` None finds it in the first line, `thousands` is
    a mark that numbers have between groups of digits, `text` is a column to be read as text.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(
            f"{str(path)!r} is a folder. Name a .csv, .csv.gz or .parquet file."
        )
    if not path.is_file():
        raise InputError(f"there is no file {str(path)!r}.")
    if path.suffix.lower() in (".parquet", ".pq"):
        return _read_parquet(path, columns, text)
    if path.suffix.lower() in (".csv", ".gz", ".txt", ".tsv"):
        return read_csv(
            path, separator=separator, decimal=decimal, thousands=thousands, text=text
        )
    sheet = path.suffix.lower() in (".xlsx", ".xls", ".ods")
    raise InputError(
        f"{path.name!r} must end in .csv, .tsv, .csv.gz or .parquet. Got {path.suffix!r}."
        + (" Save the sheet as 'CSV UTF-8' in your spreadsheet." if sheet else "")
    )


def _read_parquet(
    path: Path, columns: Sequence[str] | None, text: str | None
) -> pd.DataFrame:
    """Some columns of a Parquet file; `text` as texts."""
    need("pyarrow", extra="parquet", why="reading a Parquet file")
    import pyarrow.parquet

    with told_as_input(path):
        refuse_packed_parquet(path)
        schema = pyarrow.parquet.read_schema(path)
        wanted = None
        if columns is not None:
            wanted = [name for name in columns if name in schema.names]
        table = pd.read_parquet(path, columns=wanted)
        if text is None or text not in table.columns:
            return table
        ids = table[text]
        if text in schema.names and pyarrow.types.is_integer(schema.field(text).type):
            # With a gap among them pandas makes them floats, and large ones the same.
            exact = pd.read_parquet(path, columns=[text], dtype_backend="pyarrow")
            ids = exact[text]
        table[text] = ids.astype(object).map(str, na_action="ignore")
        return table


def refuse_endless(X: pd.DataFrame, path: Path) -> None:
    """Stop where a number is infinite, or so large that its square is."""
    for name in X.columns:
        if not pd.api.types.is_float_dtype(X[name]):
            continue
        size = np.abs(X[name].to_numpy(dtype=np.float64, na_value=np.nan))
        endless = int(np.isinf(size).sum())
        giant = size[np.isfinite(size) & (size > LARGEST)]
        where = f"column {name!r} of {path.name!r}"
        if endless:
            raise InputError(
                f"{where} holds {many(endless, 'infinite value')}. Mend them or drop those rows."
            )
        if len(giant):
            raise InputError(
                f"{where} holds {many(len(giant), 'number')} too large to compute with, such as"
                f" {giant[0]:g} (at most {LARGEST:g}). Mend them, or give the column another unit."
            )


def _numbers(table: pd.DataFrame, column: str) -> Array:
    values = table[column]
    kinds = pd.api.types
    numeric = kinds.is_numeric_dtype(values) or kinds.is_bool_dtype(values)
    if not numeric or pd.api.types.is_complex_dtype(values):
        example = values.dropna().iloc[0] if values.notna().any() else None
        raise InputError(
            f"column {column!r} must hold numbers. Got {values.dtype} such as {example!r}: encode"
            " it (pandas.get_dummies) or leave it out with features=[...]."
        )
    return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
