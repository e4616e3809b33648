"""A table in which one column says whose row it is."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from persfl.checks import LARGEST, many, named, some
from persfl.devices import Devices, offsets
from persfl.errors import InputError, PersflWarning, need
from persfl.sources.unpacking import refuse_packed_parquet, unpacked_text

_MISSING = [
    "",
    "#N/A",
    "N/A",
    "n/a",
    "NA",
    "<NA>",
    "NULL",
    "null",
    "None",
    "NaN",
    "nan",
    "-NaN",
    "-nan",
    "#NA",
]

# columns that are many, and the seconds one takes
MANY_COLUMNS, _A_COLUMN = 20_000, 3e-4


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
    columns = (
        [c for c in table.columns if c not in special]
        if features is None
        else list(features)
    )
    unknown = [c for c in [*special, *columns] if c not in table.columns]
    if unknown:
        raise InputError(
            f"the table has no {named(unknown, 'column')}. Its columns:"
            f" {some(list(table.columns), 10)}."
        )
    if label == device or label in columns or device in columns:
        raise InputError(
            f"device {device!r} and label {label!r} must be two columns, and neither of them a"
            " feature."
        )
    double = [c for c in [*special, *columns] if list(table.columns).count(c) > 1]
    if double:
        raise InputError(f"column names must differ. Got {double[0]!r} more than once.")
    if not columns:
        raise InputError(
            "the table has no feature columns beside the device and the label. Add at least one."
        )
    if not len(table):
        raise InputError("the table has no rows.")
    codes, ids = device_codes(table[device], len(table), where=f"column {device!r}")
    order = np.argsort(codes, kind="stable")
    start = offsets(np.bincount(codes, minlength=len(ids)))
    X = np.column_stack([_numbers(table, c)[order] for c in columns])
    y = _numbers(table, label)[order]
    w = _numbers(table, weight)[order] if weight else np.ones(len(y))
    devices = Devices(np.ascontiguousarray(X), y, w, start, ids, columns=columns)
    devices.label = f"column {label!r}"
    devices.check()
    return devices


def device_codes(
    devices: Any, rows: int, *, where: str = "devices"
) -> tuple[Any, list[Any]]:
    """For each row the position of its device among the sorted ids, and those ids as plain values.

    >>> codes, ids = device_codes(["b", "a", "b"], 3)
    >>> codes.tolist(), ids
    ([1, 0, 1], ['a', 'b'])
    """
    try:
        values = devices if isinstance(devices, pd.Series) else pd.Series(devices)
    except Exception:
        raise InputError(
            f"{where} must say for each row whose it is. Got {type(devices).__name__}."
        ) from None
    if len(values) != rows:
        raise InputError(
            f"{where} must say for each of the {rows} rows whose it is. Got {len(values)} entries."
        )
    missing = int(values.isna().sum())
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
    if len({type(name) for name in plain}) > 1 and len(
        {str(name) for name in plain}
    ) < len(plain):
        raise InputError(
            f"{where} has ids that differ in kind only, such as 1 and '1'. Make them all text or"
            " all numbers."
        )
    return codes, plain


def read_table(
    path: str | Path,
    *,
    device: str,
    label: str,
    features: Sequence[str] | None = None,
    weight: str | None = None,
) -> Devices:
    """Devices from a CSV or Parquet file (Parquet needs the extra `parquet`)."""
    columns = (
        None
        if features is None
        else [device, label, *features, *([weight] if weight else [])]
    )
    return from_table(
        read_frame(path, columns=columns),
        device=device,
        label=label,
        features=features,
        weight=weight,
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
        need("pyarrow", extra="parquet", why="reading a Parquet file")
        import pyarrow.parquet

        try:
            schema = pyarrow.parquet.read_schema(path)
            refuse_packed_parquet(path)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"{path.name!r} could not be read: {error}") from error
        known = schema.names
        wanted = (
            None if columns is None else [name for name in columns if name in known]
        )
        table = _read(pd.read_parquet, path, columns=wanted)
        if text is not None and text in table.columns:
            ids = table[text]
            if text in known and pyarrow.types.is_integer(schema.field(text).type):
                # With a gap among them pandas makes them floats, and large ones the same.
                exact = {"columns": [text], "dtype_backend": "pyarrow"}
                ids = _read(pd.read_parquet, path, **exact)[text]
            table[text] = ids.astype(object).map(str, na_action="ignore")
        return table
    if path.suffix.lower() in (".csv", ".gz", ".txt", ".tsv"):
        first = _beginning(path)
        separator = separator or max(",;\t", key=_line(first).count)
        names = _names(first, separator, path)
        twice = [name for name, count in Counter(names).items() if name and count > 1]
        if twice:
            raise InputError(
                f"{path.name!r} has the column {twice[0]!r} more than once. Give every column its"
                " own name."
            )
        if len(names) > MANY_COLUMNS:
            warnings.warn(
                f"{path.name!r} has {len(names):,} columns: reading and preparing them takes about"
                f" {len(names) * _A_COLUMN:,.0f} seconds before learning begins. For less, leave"
                " out of the file those that do not matter.",
                PersflWarning,
                stacklevel=2,
            )
        # The column that says whose row it is, is text as it stands: 007 and NA are names.
        options: dict[str, Any] = {
            "sep": separator,
            "decimal": decimal,
            "low_memory": False,
            "index_col": False,
        }
        if thousands is not None:
            options["thousands"] = thousands
        if text is not None and text in names:
            options |= {"dtype": {text: str}, "keep_default_na": False}
            options |= {
                "na_values": {
                    name: [""] if name == text else _MISSING for name in names
                }
            }
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", pd.errors.ParserWarning)
            with _content(path) as content:
                table = _read(pd.read_csv, path, content, **options)
        if any(issubclass(one.category, pd.errors.ParserWarning) for one in said):
            _refuse_more_cells(path, len(names), separator)  # pandas has left them out
        if text is not None and text in table.columns:
            table[text] = table[text].str.strip()
        unnamed = [name for name in table.columns if str(name).startswith("Unnamed: ")]
        return table.drop(
            columns=[
                name
                for name in unnamed
                if name == "Unnamed: 0" or table[name].isin([np.nan, ""]).all()
            ]
        )
    raise InputError(
        f"{path.name!r} must end in .csv, .tsv, .csv.gz or .parquet. Got {path.suffix!r}."
    )


def _content(path: Path) -> Any:
    """A CSV to read from, packed or not."""
    return unpacked_text(path) if path.suffix.lower() == ".gz" else path.open("rb")


def _refuse_more_cells(path: Path, columns: int, separator: str) -> None:
    """Stop where a row says more than there are columns; separators at its end say nothing."""
    with _content(path) as content:
        text = io.TextIOWrapper(content, encoding="utf-8-sig", newline="")
        rows = csv.reader(text, delimiter=separator)
        for number, cells in enumerate(_sound(rows, path), start=1):
            if any(cell.strip() for cell in cells[columns:]):
                what = f"has {len(cells)} cells, where the first line names {columns} columns"
                raise InputError(
                    f"row {number} of {path.name!r} {what}. Put cells that hold {separator!r}"
                    " between quotation marks, or part columns by another mark."
                )


def _sound(rows: Iterator[list[str]], path: Path) -> Iterator[list[str]]:
    try:
        yield from rows
    except csv.Error as error:
        raise InputError(f"{path.name!r} could not be read: {error}.") from error


def _beginning(path: Path) -> str:
    """The first of a CSV, with the line that names its columns; all kinds of line ends are one."""
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opener(path, "rb") as file:
            text = codecs.getincrementaldecoder("utf-8-sig")().decode(file.read(2**20))
    except UnicodeDecodeError:
        raise _not_utf8(path) from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path.name!r} could not be read: {error}") from error
    return str(text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\n"))


def _line(text: str) -> str:
    return text.split("\n", 1)[0]


def _names(text: str, separator: str, path: Path) -> list[str]:
    """What the columns are called."""
    if len(separator) != 1:
        raise InputError(f"the separator must be one character. Got {separator!r}.")
    try:
        return next(csv.reader(io.StringIO(text), delimiter=separator), [])
    except csv.Error as error:
        raise InputError(
            f"the first line of {path.name!r} could not be read: {error}."
        ) from error


def refuse_endless(X: pd.DataFrame, path: Path) -> None:
    """Stop where a number is infinite, or so large that its square is."""
    for name in X.columns:
        if not pd.api.types.is_float_dtype(X[name]):
            continue
        size = np.abs(X[name].to_numpy(dtype=np.float64, na_value=np.nan))
        endless, giant = (
            int(np.isinf(size).sum()),
            size[np.isfinite(size) & (size > LARGEST)],
        )
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


def _not_utf8(path: Path) -> InputError:
    return InputError(
        f"{path.name!r} is not UTF-8 text. Save it again as UTF-8 (in a spreadsheet: 'CSV UTF-8')."
    )


def _read(reader: Any, path: Path, content: Any = None, **options: Any) -> pd.DataFrame:
    try:
        return pd.DataFrame(reader(path if content is None else content, **options))
    except InputError:
        raise
    except UnicodeDecodeError:
        raise _not_utf8(path) from None
    except Exception as error:
        raise InputError(f"{path.name!r} could not be read: {error}") from error


def _numbers(table: pd.DataFrame, column: str) -> Any:
    values = table[column]
    numeric = pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(
        values
    )
    if not numeric or pd.api.types.is_complex_dtype(values):
        example = values.dropna().iloc[0] if values.notna().any() else None
        raise InputError(
            f"column {column!r} must hold numbers. Got {values.dtype} such as {example!r}: encode"
            " it (pandas.get_dummies) or leave it out with features=[...]."
        )
    return values.to_numpy(dtype=np.float64, na_value=np.nan)
