"""The rows of a shard, a row group at a time, each with whole devices.

A shard may have been changed since its index was written: what is read is held against it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from persfl.checks import LARGEST, repeated
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.scale.shard_index import ShardIndex
from persfl.scale.sharding import device_starts
from persfl.scale.source_files import told_of
from persfl.types import Array, IntArray

if TYPE_CHECKING:
    import pyarrow as pa


# how pyarrow's names of kinds of numbers begin
NUMBERS = ("int", "uint", "float", "halffloat", "double", "bool")


@dataclass(frozen=True)
class TableColumns:
    """Which columns of a table are what."""

    label: str
    features: tuple[str, ...]
    weight: str | None = None

    @property
    def numbers(self) -> list[str]:
        """All columns that must hold numbers."""
        weights = [] if self.weight is None else [self.weight]
        return [*self.features, self.label, *weights]


class ShardPiece(NamedTuple):
    """Devices from the position `first` in the fleet on: their ids and rows."""

    first: int
    ids: pa.Array
    rows: Devices

    @property
    def positions(self) -> IntArray:
        """(devices,) in the fleet."""
        return self.first + np.arange(len(self.rows))


def shard_pieces(
    index: ShardIndex, shard: int, columns: TableColumns
) -> Iterator[ShardPiece]:
    """The rows of a shard."""
    import pyarrow.parquet as pq

    about = index.shards[shard]
    path = index.folder / about.file
    first = int(index.first[shard])
    if not path.is_file():
        raise InputError(
            f"there is no shard {str(path)!r}, which the index names. Every worker must see"
            " the folder of shards under this name."
        )
    devices = 0
    rows = 0
    last: Any = None
    with told_of(path), pq.ParquetFile(path) as file:
        _refuse_schema(file.schema_arrow, index, about.file)
        wanted = [index.device, *columns.numbers]
        for k in range(file.num_row_groups):
            if not 0 < file.metadata.row_group(k).num_rows <= about.largest:
                raise _changed(about.file)
            piece = file.read_row_group(k, columns=wanted)
            ids, starts = _devices_of(piece[index.device], last, about.file)
            last = ids[-1].as_py()
            yield ShardPiece(first + devices, ids, _rows_of(piece, starts, columns))
            devices += len(ids)
            rows += len(piece)
    if devices != about.devices or rows != about.rows or last != about.last:
        raise _changed(about.file)


def refuse_columns(index: ShardIndex, columns: TableColumns) -> None:
    """Stop where columns are not there, are used twice, or hold no numbers."""
    wanted = [index.device, *columns.numbers]
    twice = repeated(wanted)
    for name in wanted:
        if name not in index.columns:
            known = ", ".join(index.columns)
            raise InputError(f"there is no column {name!r}. There are: {known}.")
        if name in twice:
            raise InputError(
                f"column {name!r} is named twice: device, label, weight and features must be"
                " different columns."
            )
    for name in columns.numbers:
        kind = index.columns[name]
        if not kind.startswith(NUMBERS):
            raise InputError(
                f"column {name!r} holds {kind}, no numbers. Leave it out with --drop, or turn"
                " it into numbers: over shards models are of numbers alone."
            )
    if not columns.features:
        raise InputError(
            "there are no feature columns beside the device and the label. Add at least one."
        )


def _refuse_schema(schema: pa.Schema, index: ShardIndex, name: str) -> None:
    here = {field.name: str(field.type) for field in schema}
    if here != dict(index.columns):
        raise _changed(name)


def _devices_of(
    column: pa.ChunkedArray, last: Any, name: str
) -> tuple[pa.Array, IntArray]:
    """The ids of a row group, each once, and where their rows begin."""
    import pyarrow.compute as pc

    whole = column.combine_chunks()
    if not len(whole) or whole.null_count:
        raise _changed(name)
    starts = device_starts(whole)
    ids = whole.take(starts[:-1])
    before = ids[0].as_py()
    if last is not None and last == before:
        raise InputError(
            f"device {last!r} is in two row groups of {name!r}. Make the shards again with"
            " persfl shard."
        )
    rising = pc.all(pc.less(ids.slice(0, len(ids) - 1), ids.slice(1))).as_py()
    if rising is False or (last is not None and last > before):
        raise _changed(name)
    return ids, starts


def _rows_of(piece: pa.Table, starts: IntArray, columns: TableColumns) -> Devices:
    X = column_numbers(piece, columns.features)
    y = column_numbers(piece, [columns.label])[:, 0]
    weight = np.ones(len(y))
    if columns.weight is not None:
        weight = column_numbers(piece, [columns.weight])[:, 0]
    _refuse_numbers(X, y, weight, columns)
    names = list(columns.features)
    return Devices(X, y, weight, starts, range(len(starts) - 1), columns=names)


def column_numbers(piece: pa.Table, names: Sequence[str]) -> Array:
    """(rows, columns) some columns as numbers; what is missing is NaN."""
    import pyarrow as pa

    found = np.empty((len(piece), len(names)))
    for k, name in enumerate(names):
        column = piece[name]
        if pa.types.is_boolean(column.type):
            column = column.cast(pa.int8())
        found[:, k] = column.to_numpy()
    return found


def _refuse_numbers(X: Array, y: Array, weight: Array, columns: TableColumns) -> None:
    for k, name in enumerate(columns.features):
        _refuse_odd(X[:, k], name)
    _refuse_odd(y, columns.label)
    _refuse_giant(weight, str(columns.weight))
    if not (np.isfinite(weight).all() and (weight > 0).all()):
        raise InputError(
            f"weights must be above 0. Column {columns.weight!r} has others: drop those rows."
        )


def _refuse_odd(values: Array, name: str) -> None:
    if not np.isfinite(values).all():
        what = "Fill them in, or drop those rows."
        raise InputError(f"column {name!r} has missing or infinite values. {what}")
    _refuse_giant(values, name)


def _refuse_giant(values: Array, name: str) -> None:
    if np.abs(values).max(initial=0.0) > LARGEST:
        raise InputError(
            f"column {name!r} holds numbers too large to compute with (at most {LARGEST:g})."
            " Mend them, or give the column another unit."
        )


def _changed(name: str) -> InputError:
    return InputError(
        f"{name!r} is not what the index of the shards says of it. Make the shards again with"
        " persfl shard."
    )
