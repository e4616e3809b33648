"""Rows of a folder of files, sorted into shards: each a range of devices, whole and in order.

1. The column of devices is read alone: who there is, and how many rows each has.
2. Devices in the order of their ids are cut into shards of about equal rows. Rows are read piece by
   piece and put into their shard's file as they come.
3. Each of these is sorted by device, rows of a device staying in their order, and written as
   Parquet, with whole devices in a row group. The index comes last.

No more than a piece or a shard of rows is in memory at a time, beside the ids.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from persfl.checks import many, whole
from persfl.errors import InputError
from persfl.files import UNFINISHED, remove_empty, remove_regular
from persfl.folder_locks import LOCK, holding
from persfl.scale.shard_index import (
    NAME,
    Shard,
    ShardIndex,
    is_unfinished,
    write_unfinished,
)
from persfl.scale.source_files import SourceFiles
from persfl.types import IntArray

if TYPE_CHECKING:
    import pyarrow as pa

SHARD_ROWS = 2_000_000  # of a shard; it is sorted in memory
LEAST = 16  # shards, so that as many cores have work
MOST = 500  # shards; each is an open file for a while
GROUP = 65_536  # rows of a row group, unless one device has more
PARTS = "unsorted"  # the folder of what is not sorted yet
_LEFT = (LOCK, NAME + UNFINISHED)  # by who was killed before anything was sorted
Say = Callable[[str, float], None]


def shard_folder(
    source: str | Path,
    out: str | Path,
    *,
    device: str,
    shards: int | None = None,
    group: int = GROUP,
    say: Say | None = None,
) -> ShardIndex:
    """Sort the rows of a folder of files by `device` into shards.

    `shards` is how many; without it as many as keep each at two million rows. `group` is how many
    rows a row group has at most, unless one device has more: what a worker holds at a time. `say`
    is told what is being done, and which share of it is.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "may.csv").write_text("meter,kwh\\nb,1\\na,2\\nb,3\\n")
    >>> out = tempfile.mkdtemp()
    >>> index = shard_folder(folder, out, device="meter", shards=2)
    >>> [(shard.first, shard.rows) for shard in index.shards]
    [('a', 1), ('b', 2)]
    """
    files = SourceFiles.of(source, device)
    place = Path(out)
    if Path(source).resolve() in (place.resolve(), *place.resolve().parents):
        raise InputError(
            "the shards must have a folder outside that of the files. Name it with --out."
        )
    whole("group", group, least=1)
    tell = say or _nothing
    stamp = files.stamp  # before they are read: what changes meanwhile is seen
    with _new_folder(place):
        ids, counts = _who_is_there(files, tell)
        cuts = _cuts(counts, shards)
        _dealt_rows(files, place / PARTS, ids, cuts, int(counts.sum()), tell)
        found = []
        for k in range(len(cuts) - 1):
            tell("sorting shards", k / (len(cuts) - 1))
            rows = _sorted_rows(place / PARTS / str(k), device)
            name = _shard_name(k)
            found.append(_written(place, name, rows, device, group))
            (place / PARTS / str(k)).unlink()
        kinds = {field.name: str(field.type) for field in rows.schema}
        index = ShardIndex(place, device, kinds, found, stamp)
        index.write()
    return index


def _nothing(what: str, share: float) -> None:
    """Says nothing."""


def _who_is_there(files: SourceFiles, say: Say) -> tuple[pa.Array, IntArray]:
    """All ids in order, and how many rows each has."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known: Any = None
    for k, piece in enumerate(files.pieces([files.device])):
        say("counting devices", k)
        column = ids_column(piece[files.device])
        gone = column.null_count
        if not pa.types.is_integer(column.type):
            gone += pc.sum(pc.equal(column, ""), min_count=0).as_py()
        if gone:
            raise InputError(
                f"column {files.device!r} must say whose row it is; {many(gone, 'row')}"
                f" {'leaves' if gone == 1 else 'leave'} it empty. Fill it in or drop those rows."
            )
        one = pa.table({"id": column, "rows": np.ones(len(column), dtype=np.int64)})
        both = one if known is None else pa.concat_tables([known, one])
        totals = both.group_by("id").aggregate([("rows", "sum")])
        known = totals.select(["id", "rows_sum"]).rename_columns(["id", "rows"])
    if known is None or not len(known):
        raise InputError("the files have no rows.")
    known = known.sort_by("id").combine_chunks()
    return known["id"].combine_chunks(), known["rows"].to_numpy()


def ids_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Ids as texts or whole numbers of one width."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return column.cast(pa.int64() if pa.types.is_integer(kind) else pa.large_string())


def _cuts(counts: IntArray, shards: int | None) -> IntArray:
    """(shards + 1,) the places of devices at which shards begin, and after the last their number;
    about as many rows in each.

    >>> _cuts(np.array([5, 1, 1, 1, 2]), 2).tolist(), _cuts(np.ones(3), 9).tolist()
    ([0, 1, 5], [0, 1, 2, 3])
    """
    n = len(counts)
    rows = int(counts.sum())
    usual = min(max(LEAST, -(-rows // SHARD_ROWS)), MOST)
    many = usual if shards is None else whole("shards", shards, least=1, most=MOST)
    wanted = rows * np.arange(1, many) / many
    at = np.searchsorted(np.cumsum(counts), wanted) + 1
    # fewer where one device has the rows of several shards
    inner = np.unique(np.minimum(at, n - 1))
    inner = inner[inner > 0]
    return np.concatenate([[0], inner, [n]])


def _dealt_rows(
    files: SourceFiles, parts: Path, ids: pa.Array, cuts: IntArray, total: int, say: Say
) -> None:
    """Every row into the file of its shard, in the order in which they come."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts.mkdir()
    schema = files.schema
    at = schema.get_field_index(files.device)
    schema = schema.set(at, pa.field(files.device, ids.type))
    with contextlib.ExitStack() as stack:
        writers = [
            stack.enter_context(pa.ipc.new_stream(parts / str(k), schema))
            for k in range(len(cuts) - 1)
        ]
        done = 0
        for piece in files.pieces():
            say("reading rows", done / total)
            named = piece.set_column(
                at, schema.field(at), ids_column(piece[files.device])
            )
            rank = pc.index_in(named[files.device], value_set=ids).to_numpy()
            shard = np.searchsorted(cuts, rank, side="right") - 1
            order = np.argsort(shard, kind="stable")
            moved = named.take(order)
            edges = np.searchsorted(shard[order], np.arange(len(cuts)))
            for k, writer in enumerate(writers):
                if edges[k + 1] > edges[k]:
                    writer.write_table(moved.slice(edges[k], edges[k + 1] - edges[k]))
            done += len(piece)


def _sorted_rows(path: Path, device: str) -> pa.Table:
    """The rows of a shard by device; those of a device stay in their order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
        rows = reader.read_all()
    # stable, says Arrow of it
    return rows.take(pc.sort_indices(rows[device])).combine_chunks()


def _written(place: Path, name: str, rows: pa.Table, device: str, group: int) -> Shard:
    """A shard's file, whole devices in a row group."""
    import pyarrow.parquet as pq

    starts = device_starts(rows[device].combine_chunks())
    cuts = group_cuts(starts, group)
    with pq.ParquetWriter(place / name, rows.schema) as writer:
        for begin, end in pairwise(cuts):
            part = rows.slice(begin, end - begin)
            writer.write_table(part, row_group_size=len(part))
    first = rows[device][0].as_py()
    last = rows[device][-1].as_py()
    largest = int(np.diff(cuts).max())
    return Shard(name, len(starts) - 1, len(rows), first, last, largest)


def device_starts(column: pa.Array) -> IntArray:
    """Where each device's rows begin in a sorted column, and after the last its length."""
    import pyarrow.compute as pc

    rows = len(column)
    if rows < 2:
        return np.arange(rows + 1)
    same = pc.equal(column.slice(1), column.slice(0, rows - 1))
    begins = np.flatnonzero(~same.to_numpy(zero_copy_only=False)) + 1
    return np.concatenate([[0], begins, [rows]])


def group_cuts(starts: IntArray, most: int) -> list[int]:
    """Where row groups begin and end: whole devices, at most so many rows unless one has more.

    >>> group_cuts(np.array([0, 3, 5, 9, 10]), 5)
    [0, 5, 10]
    """
    cuts = [0]
    last = int(starts[-1])
    while cuts[-1] < last:
        k = int(np.searchsorted(starts, cuts[-1] + most, side="right")) - 1
        if starts[k] <= cuts[-1]:
            k += 1
        cuts.append(int(starts[k]))
    return cuts


@contextlib.contextmanager
def _new_folder(place: Path) -> Iterator[None]:
    """A folder that is empty, but for what sorting left that was killed there, and that nobody else
    writes into. What could not be made whole is removed; a full disk is said in a sentence.
    """
    made = not place.exists()
    if not made and not place.is_dir():
        raise _full(place)
    place.mkdir(parents=True, exist_ok=True)
    try:
        with holding(place):
            if is_unfinished(place):
                _remove_unfinished(place)
            if any(path.name not in _LEFT for path in place.iterdir()):
                raise _full(place)
            with _removed_unless_whole(place):
                yield
    except BaseException:
        if made:
            remove_empty(place)
        raise


def _full(place: Path) -> InputError:
    return InputError(
        f"{str(place)!r} is not empty. Name a new folder for the shards with --out."
    )


@contextlib.contextmanager
def _removed_unless_whole(place: Path) -> Iterator[None]:
    try:
        write_unfinished(place)
        yield
        remove_empty(place / PARTS)
    except BaseException as error:
        _remove_unfinished(place)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise InputError(
                f"there is no space left in {str(place)!r}. The files that were read are as"
                " they were: free some space, or name another folder with --out."
            ) from error
        raise


def _remove_unfinished(place: Path) -> None:
    """Remove what sorting writes, by its names, and nothing else. The index goes last: without it
    nobody could tell whose the others are.
    """
    for k in range(MOST):
        if not (place / PARTS).is_symlink():
            remove_regular(place / PARTS / str(k))
        remove_regular(place / _shard_name(k))
    remove_empty(place / PARTS)
    remove_regular(place / NAME)


def _shard_name(k: int) -> str:
    return f"shard-{k:05d}.parquet"
