"""How much a packed table unpacks to, looked at before it fills the memory.

A value that repeats costs next to nothing in a packed file: a few kilobytes can stand for as many
gigabytes. Tables that people pack grow by a factor of ten or so; beyond a bound that is far from
that, a file is refused.
"""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from persfl.errors import InputError, need
from persfl.types import AnyArray

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT96": 12}  # bytes; others have 8
_NUMBERS, _ROOM_NUMBERS = 200, 2**28  # times the size of a file, and bytes beside that
_LETTERS, _ROOM_LETTERS = 100, 2**26  # of CSV, which takes many times its size to read
_ROWS = 2**16  # that are looked at together, at most


def read_arrays(path: Path, names: Collection[str]) -> dict[str, AnyArray]:
    """The arrays of a `.npz` archive by name; those of other names are empty."""
    if not path.is_file():
        raise InputError(f"there is no file {str(path)!r}.")
    try:
        _refuse_packed_arrays(path)
        with np.load(path, allow_pickle=False) as archive:
            return {
                name: archive[name] if name in names else np.empty(0)
                for name in archive.files
            }
    except InputError:
        raise
    # not an archive, or one that holds objects, which are never unpickled
    except Exception as error:
        raise InputError(
            f"{str(path)!r} cannot be read as a .npz archive of plain arrays: {error}"
        ) from error


def _refuse_packed_arrays(path: Path) -> None:
    """Stop where an archive of arrays unpacks to far more than its size."""
    try:
        with zipfile.ZipFile(path) as archive:
            total = sum(part.file_size for part in archive.infolist())
    except zipfile.BadZipFile:
        return  # whoever reads it says so
    _hold(path, total, _most_numbers(path))


def refuse_packed_parquet(path: Path, *, texts: bool = False) -> None:
    """Stop where a Parquet file unpacks to far more than its size; where it is read piece by piece,
    only `texts` can make a piece too large.

    >>> import tempfile
    >>> import pandas as pd
    >>> path = Path(tempfile.mkdtemp()) / "rows.parquet"
    >>> pd.DataFrame({"x": [0.0] * 1000}).to_parquet(path)
    >>> refuse_packed_parquet(path)
    """
    parquet = need("pyarrow.parquet", extra="parquet", why="reading a Parquet file")
    about = parquet.read_metadata(path)
    most = _most_numbers(path)
    total = 0 if texts else about.num_rows
    longest: dict[
        str, int
    ] = {}  # columns whose texts must be counted, how long one may be
    for group in map(about.row_group, range(about.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            values = max(column.num_values, group.num_rows)
            if not texts:
                total += values * _WIDTHS.get(column.physical_type, 8)
            # A text may stand in the file once and in every row of the table.
            size = column.total_uncompressed_size
            name = column.path_in_schema
            wide = column.physical_type.endswith("BYTE_ARRAY")
            if wide and values * size > most:
                longest[name] = max(size, longest.get(name, 1))
    _hold(path, total, most)
    if longest:
        _hold(path, total + _letters(path, longest, most - total), most)


def _letters(path: Path, longest: Mapping[str, int], most: int) -> int:
    """How many bytes the texts of some columns take, each counted as often as it stands.

    So few rows at a time that they fit in any case.
    """
    parquet = need("pyarrow.parquet", extra="parquet", why="reading a Parquet file")
    rows = max(1, min(_ROWS, most // sum(longest.values())))
    how = {"columns": list(longest), "use_threads": False}
    total = 0
    for batch in parquet.ParquetFile(path).iter_batches(rows, **how):
        total += batch.nbytes
        if total > most:
            break
    return total


def unpacked_text(path: Path) -> io.BufferedReader:
    """The content of a .gz file, which is refused on the way where it is far too long."""
    most = _LETTERS * path.stat().st_size + _ROOM_LETTERS
    return io.BufferedReader(_Bounded(path, most))


class _Bounded(io.RawIOBase):
    """Reads a .gz file up to so many bytes."""

    def __init__(self, path: Path, most: int) -> None:
        self._path = path
        self._most = most
        self._read = 0
        self._file = gzip.open(path, "rb")  # noqa: SIM115

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        room = memoryview(buffer).cast("B")
        piece = self._file.read(len(room))
        self._read += len(piece)
        _hold(self._path, self._read, self._most)
        room[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        self._file.close()
        super().close()


def _most_numbers(path: Path) -> int:
    return _NUMBERS * path.stat().st_size + _ROOM_NUMBERS


def _hold(path: Path, total: int, most: int) -> None:
    if total > most:
        size = path.stat().st_size
        raise InputError(
            f"{path.name!r} has {size:,} bytes and unpacks to more than {most:,}, as no table"
            " of measurements does. If you trust it, hand it in as a plain .csv."
        )
