"""A file of a table of models, or of helpers, that somebody else may have made.

Its columns are looked at before any is read: there, of numbers, and unpacking to no more than a
file of its size can stand for. Whatever else is wrong with it is said in a sentence that names it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from persfl.errors import InputError
from persfl.files import NO_WAIT, open_regular
from persfl.formats import reading
from persfl.parquet import refuse_large
from persfl.scale.source_files import told_of

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

# models that are all alike unpack to many times their size
RATIO = 1_000
ROOM = 2**22


@contextlib.contextmanager
def opened_part(
    path: Path, ids: Sequence[str], numbers: Sequence[str]
) -> Iterator[pq.ParquetFile]:
    """A file with these columns of ids and of numbers; errors while it is used are its own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with told_of(path), reading(path), _mapped(path) as content:
        refuse_large(content, most=RATIO * len(content) + ROOM)
        packed = pa.py_buffer(content)
        file = pq.ParquetFile(packed, read_dictionary=list(ids))
        _refuse_kinds(file.schema_arrow, ids, numbers)
        yield file


@contextlib.contextmanager
def _mapped(path: Path) -> Iterator[mmap.mmap]:
    """The bytes of a regular file, read as they are looked at."""
    with open_regular(path, os.O_RDONLY | NO_WAIT, "rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        yield content
    finally:
        with contextlib.suppress(BufferError):  # what was read of it may be in use
            content.close()


def _refuse_kinds(
    schema: pa.Schema, ids: Sequence[str], numbers: Sequence[str]
) -> None:
    from pyarrow import types

    found = Counter(schema.names)
    for name in [*ids, *numbers]:
        if found[name] != 1:
            raise InputError(f"it must have one column {name!r}")
    for name in ids:
        kind = schema.field(name).type
        if types.is_dictionary(kind):
            kind = kind.value_type
        text = types.is_string(kind) or types.is_large_string(kind)
        if not text and not types.is_int64(kind):
            raise InputError(f"column {name!r} must hold ids")
    for name in numbers:
        kind = schema.field(name).type
        if not types.is_float64(kind) and not types.is_int64(kind):
            raise InputError(f"column {name!r} must hold numbers")
