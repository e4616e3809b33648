"""How much a packed table unpacks to, looked at before it fills the memory.

A value that repeats costs next to nothing in a packed file: a few kilobytes can stand for as many
gigabytes. Tables that people pack grow by a factor of ten or so; beyond a bound that is far from
that, a file is refused.
"""

from __future__ import annotations

import gzip
import io
import math
import zipfile
from collections.abc import Collection, Iterator, Mapping
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from persfl.errors import InputError, need
from persfl.parquet import Column, columns_of
from persfl.types import AnyArray

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# bytes of a value by Parquet's kinds; others have 8, inside lists they are objects
_WIDTHS = {0: 1, 1: 4, 3: 12, 4: 4}
_NESTED = 128
_A_TEXT = 64  # beside its letters
_TEXTS = (6, 7)
_NUMBERS, _ROOM_NUMBERS = 200, 2**28  # times the size of a file, and bytes beside that
_LETTERS, _ROOM_LETTERS = 100, 2**26  # of CSV, which takes many times its size to read
_ROWS = 2**16  # that are looked at together, at most


def read_arrays(path: Path, names: Collection[str]) -> dict[str, AnyArray]:
    """The arrays of a `.npz` archive by name; those of other names are empty."""
    if not path.is_file():
        raise InputError(f"there is no file {str(path)!r}.")
    try:
        _refuse_packed_arrays(path, names)
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


def _refuse_packed_arrays(path: Path, names: Collection[str]) -> None:
    """Stop where an archive of arrays unpacks to far more than its size, or those of these names
    to far more numbers and texts.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            parts = archive.infolist()
            total = sum(part.file_size for part in parts)
            _hold(path, total, _most_numbers(path))
            wanted = [
                one for one in parts if one.filename.removesuffix(".npy") in names
            ]
            total = sum(_in_memory(archive, one) for one in wanted)
    except zipfile.BadZipFile:
        return  # whoever reads it says so
    _hold(path, total, _most_numbers(path))


def _in_memory(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> int:
    """How many bytes an array takes as numbers or texts, by its head: texts without letters and
    truth values hardly take any in the file.
    """
    with archive.open(part) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            read = np.lib.format.read_array_header_2_0
        shape, _, kind = read(file)
    each = 8 if kind.kind in "biuf" else kind.itemsize + _A_TEXT
    return math.prod(shape) * each


def refuse_packed_parquet(path: Path, *, texts: bool = False) -> None:
    """Stop where a Parquet file unpacks to far more than its size; where it is read piece by piece,
    only `texts` and pages can make a piece too large.

    pyarrow ends the process where some of what a file says makes no sense: it is looked at first.

    >>> import tempfile
    >>> import pandas as pd
    >>> path = Path(tempfile.mkdtemp()) / "rows.parquet"
    >>> pd.DataFrame({"x": [0.0] * 1000}).to_parquet(path)
    >>> refuse_packed_parquet(path)
    """
    most = _most_numbers(path)
    total = group = pages = 0
    longest: dict[
        str, int
    ] = {}  # columns whose texts must be counted, how long one may be
    for column in _columns(path):
        values = max(column.values, column.rows)
        # every column of a group has a page open
        pages = column.largest + (pages if column.group == group else 0)
        group = column.group
        _hold(path, pages, most)
        if not texts:
            width = _NESTED if column.nested else _WIDTHS.get(column.kind, 8)
            total += max(values * width, column.size)
        # A text may stand in the file once and in every row of the table.
        if column.kind in _TEXTS and values * column.size > most:
            longest[column.name] = max(column.size, longest.get(column.name, 1))
    _hold(path, total, most)
    if longest:
        _hold(path, total + _letters(path, longest, most - total), most)


def _columns(path: Path) -> Iterator[Column]:
    """What the columns of a Parquet file say of themselves."""
    try:
        with (
            path.open("rb") as file,
            mmap(file.fileno(), 0, access=ACCESS_READ) as content,
        ):
            yield from columns_of(content)
    # whatever a check further in did not think of is the file's fault
    except (InputError, LookupError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f"{path.name!r} could not be read: what it says of its columns makes no sense. Repair"
            " it, or write it again as CSV."
        ) from error


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
