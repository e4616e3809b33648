"""Numbers, JSON and tables from bytes that somebody else may have written.

A digest says that a file was not damaged, not who made it. So sizes are checked before anything is
unpacked, kinds and shapes before anything is used, and no format here can name a type or hold code.

>>> numbers_from(numbers_to({"a": np.arange(3)}))["a"].tolist()
[0, 1, 2]
>>> with reading(Path("run/model.json")):
...     json_from(b"[" * 100_000)
Traceback (most recent call last):
...
persfl.errors.InputError: 'run/model.json' does not hold what persfl writes there. ...
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from persfl.errors import InputError, MissingExtra, PersflError, need
from persfl.parquet import refuse_bomb
from persfl.types import AnyArray

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow

KINDS = "biufU"  # of arrays: truth values, numbers, texts
# a table unpacks to at most so many times its size, and a little room
_RATIO = 200
_ROOM = 2**22
_WHAT_TO_DO = "Restore it, or run again into another folder."


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """The one place where malformed content becomes a sentence that names the file.

    Whatever a check further in did not think of (a missing key, another type, a shape that does
    not fit) is the file's fault here. Trouble with the disk is told as what it is.
    """
    try:
        yield
    except (MissingExtra, OSError):
        raise
    except PersflError as error:
        why = str(error).rstrip(".")
        raise InputError(f"{_foreign(path)}: {why}. {_WHAT_TO_DO}") from error
    except Exception as error:
        raise InputError(f"{_foreign(path)}. {_WHAT_TO_DO}") from error


def _foreign(path: Path) -> str:
    return f"{str(path)!r} does not hold what persfl writes there"


def json_to(value: object) -> bytes:
    """A value as JSON."""
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def json_from(content: bytes) -> Any:
    """The value of a JSON text, all of whose texts can be written again."""
    # as text: json itself lets halves of signs pass that UTF-8 has not
    value = json.loads(content.decode())
    # half of a pair of signs can be told in JSON, and nowhere else
    if b"\\u" in content:
        json.dumps(value, ensure_ascii=False).encode()
    return value


def numbers_to(arrays: Mapping[str, AnyArray]) -> bytes:
    """Named arrays as an .npz file, not compressed."""
    made = io.BytesIO()
    everything: dict[str, Any] = dict(arrays)
    np.savez(made, **everything)
    return made.getvalue()


def numbers_from(content: bytes) -> dict[str, AnyArray]:
    """The inverse of `numbers_to`.

    Parts are stored as they are, so that a file can never unpack to more than its own size.
    """
    arrays: dict[str, AnyArray] = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = archive.infolist()
        stored = all(part.compress_type == zipfile.ZIP_STORED for part in parts)
        if not stored or sum(part.file_size for part in parts) > len(content):
            raise InputError("its arrays must not be compressed.")
        for part in parts:
            name = part.filename.removesuffix(".npy")
            if name in arrays or name == part.filename:
                raise InputError("it must hold arrays, each once.")
            arrays[name] = _array(archive.read(part))
    return arrays


def _array(content: bytes) -> AnyArray:
    """An array of the .npy format, whose size must be what its head says."""
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    else:
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
    if dtype.kind not in KINDS or dtype.hasobject or not dtype.itemsize:
        raise InputError("its arrays must hold numbers or texts.")
    count = math.prod(shape)
    room = len(content) - stream.tell()
    if any(length < 0 for length in shape) or count * dtype.itemsize != room:
        raise InputError("an array must be as long as its head says.")
    flat = np.frombuffer(content, dtype, count, stream.tell())
    found = flat.reshape(shape, order="F" if fortran else "C")
    return found.astype(dtype.newbyteorder("="))  # a copy that may be written to


def table_from(content: bytes) -> pd.DataFrame:
    """A table from Parquet, of numbers and lists of numbers.

    What unpacks to far more than its size is refused before it is unpacked.
    """
    parquet = need("pyarrow.parquet", extra="app", why="reading a run")
    try:
        refuse_bomb(content, most=_RATIO * len(content) + _ROOM)
        source = parquet.ParquetFile(io.BytesIO(content))
        if not all(_numbers(field.type) for field in source.schema_arrow):
            raise InputError("its columns must hold numbers.")
        found: pd.DataFrame = source.read(use_threads=False).to_pandas(
            ignore_metadata=True
        )
        return found
    except InputError:
        raise
    except Exception as error:  # the library has many of its own, OSError among them
        raise InputError("it is not a table in the Parquet format.") from error


def _numbers(kind: pyarrow.DataType) -> bool:
    """Whether a column of this type holds truth values, numbers, or lists of them."""
    arrow = need("pyarrow.types", extra="app", why="reading a run")
    if arrow.is_list(kind):
        kind = kind.value_type
    return bool(
        arrow.is_integer(kind) or arrow.is_floating(kind) or arrow.is_boolean(kind)
    )
