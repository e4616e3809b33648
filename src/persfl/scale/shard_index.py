"""The index of a folder of shards: which devices and how many rows are in which file.

Shards are ranges of devices in the order of their ids, so a device's place in the fleet is known
from the index and its place in its shard. The folder may come from elsewhere: everything in the
index is looked at before it is used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from persfl.errors import InputError
from persfl.files import read_whole, write_whole
from persfl.formats import json_from
from persfl.types import IntArray

NAME = "shards.json"
FORMAT = 1
LONGEST = 2**26  # bytes of an index
# what stands in its place until all shards are there: the others in the folder are persfl's own
_UNFINISHED = b'{"format": 1, "unfinished": true}\n'
Id = str | int


@dataclass(frozen=True)
class Shard:
    """One file: its devices from `first` to `last`, in order, and how many rows they have."""

    file: str
    devices: int
    rows: int
    first: Id
    last: Id
    largest: int
    """Rows of its largest row group: what is in memory at a time."""


@dataclass(frozen=True)
class ShardIndex:
    """All shards of a folder; `columns` are names and types, as pyarrow writes them."""

    folder: Path
    device: str
    columns: Mapping[str, str]
    shards: Sequence[Shard]
    source: str = ""
    """Which files the rows are from, and as of when: `SourceFiles.stamp`."""

    @property
    def devices(self) -> int:
        """How many devices there are."""
        return sum(shard.devices for shard in self.shards)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(shard.rows for shard in self.shards)

    @property
    def first(self) -> IntArray:
        """(shards + 1,) the place in the fleet of each shard's first device; last their number."""
        counts = [shard.devices for shard in self.shards]
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    @property
    def digest(self) -> str:
        """A short text that other shards, or the same of other rows, do not have."""
        return hashlib.sha256(self._text()).hexdigest()

    def write(self) -> None:
        """Write it whole: a folder with an index is a folder of shards."""
        write_whole(self.folder / NAME, self._text())

    def _text(self) -> bytes:
        told = {
            "format": FORMAT,
            "device": self.device,
            "columns": dict(self.columns),
            "shards": [asdict(shard) for shard in self.shards],
            "source": self.source,
        }
        return json.dumps(told, indent=1).encode()

    @staticmethod
    def read(folder: str | Path) -> ShardIndex:
        """The index of a folder that `persfl shard` made."""
        path = Path(folder) / NAME
        if not path.is_file():
            raise InputError(
                f"{str(folder)!r} is not a folder of shards. Make one: persfl shard FOLDER"
                " --device COLUMN --out SHARDS."
            )
        if is_unfinished(Path(folder)):
            raise InputError(
                f"the shards in {str(folder)!r} are not all there: who made them was stopped. Make"
                " them again by the same command."
            )
        if path.stat().st_size > LONGEST:
            raise _damaged(path)
        try:
            found = _index_of(Path(folder), json_from(read_whole(path)))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise _damaged(path) from error
        _refuse_overlap(found)
        return found


def write_unfinished(folder: Path) -> None:
    """From here on a folder's shards are being made."""
    write_whole(folder / NAME, _UNFINISHED)


def is_unfinished(folder: Path) -> bool:
    """Whether shards were being made here, and are not whole.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_unfinished(folder)
    >>> is_unfinished(folder)
    True
    """
    path = folder / NAME
    small = path.is_file() and path.stat().st_size == len(_UNFINISHED)
    return small and read_whole(path) == _UNFINISHED


def _index_of(folder: Path, told: Any) -> ShardIndex:
    if told["format"] != FORMAT:
        raise ValueError
    device = told["device"]
    columns = dict(told["columns"])
    shards = [_shard_of(one) for one in told["shards"]]
    plain = all(isinstance(text, str) for pair in columns.items() for text in pair)
    if not plain or device not in columns or not shards:
        raise ValueError
    source = told.get("source", "")
    if len({type(shard.first) for shard in shards}) > 1 or not isinstance(source, str):
        raise ValueError
    return ShardIndex(folder, device, columns, shards, source)


def _shard_of(told: Mapping[str, Any]) -> Shard:
    shard = Shard(**told)
    name = shard.file
    inside = (
        isinstance(name, str) and name == Path(name).name and name[:1] not in ("", ".")
    )
    counts = (shard.devices, shard.rows, shard.largest)
    whole = all(type(count) is int and count > 0 for count in counts)
    one_kind = type(shard.first) is type(shard.last) and type(shard.first) in (str, int)
    if not (inside and whole and one_kind) or shard.rows < shard.devices:
        raise ValueError
    return shard


def _refuse_overlap(index: ShardIndex) -> None:
    """Stop where shards are not one after the other: a device would have two models."""
    for left, right in pairwise(index.shards):
        if not left.last < right.first:  # type: ignore[operator]
            raise InputError(
                f"device {right.first!r} of {right.file!r} may be in {left.file!r} too, which"
                f" goes up to {left.last!r}. A device must be in one shard: make them again"
                " with persfl shard."
            )


def _damaged(path: Path) -> InputError:
    return InputError(
        f"{str(path)!r} is damaged. Make the shards again with persfl shard."
    )
