"""A message as bytes: a small JSON head and named arrays, in the safetensors format.

Sizes are checked before anything is parsed, kinds and shapes before anything is used. Whatever the
bytes are, `unpack` returns or raises `WireError`: nothing that a peer sends can do anything else
here.

>>> body = pack({"round": 3}, {"model": np.array([1.0, 2.0])})
>>> head, arrays = unpack(body)
>>> head, arrays["model"].tolist()
({'round': 3}, [1.0, 2.0])
>>> unpack(body[:-1])
Traceback (most recent call last):
...
persfl.wire.codec.WireError: the message is not in the wire format.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from persfl.errors import PersflError, need
from persfl.learners.storage.named_arrays import (
    AnyArray,
    Arrays,
    is_sensible,
    prefixed,
    under,
)

if TYPE_CHECKING:
    from persfl.types import Array

FORMAT = 1
LARGEST = 64 * 2**20  # bytes of one message
_HEAD = 2**20  # bytes of a head, and of the list of arrays
_ARRAYS = 50_000
_AXES = 4
_KINDS = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "U8": "|u1"}
# What wrong bytes may lead to here, beside safetensors' own error
_OURS = (
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    OverflowError,
    MemoryError,
    RecursionError,
    AttributeError,
)
_NAMES = {np.dtype(kind): name for name, kind in _KINDS.items()}


class WireError(PersflError, ValueError):
    """Something that came over the wire is not what it should be; the text never repeats what
    came.
    """


def pack(head: Mapping[str, Any], arrays: Arrays | None = None) -> bytes:
    """A message; the head holds what JSON holds, arrays are float64, float32, int64 or uint8."""
    safetensors = need("safetensors.numpy", extra="flower", why="the wire format")
    text = json.dumps({"format": FORMAT, **head}, allow_nan=False).encode()
    parts: dict[str, AnyArray] = {"head": np.frombuffer(text, dtype=np.uint8)}
    for name, array in (arrays or {}).items():
        part = np.ascontiguousarray(array)
        if part.dtype.newbyteorder("<") not in _NAMES:
            raise WireError(
                "arrays of a message must be float64, float32, int64 or uint8. Got"
                f" {part.dtype}."
            )
        parts[f"a.{name}"] = part
    return bytes(safetensors.save(parts))


def unpack(
    body: object, *, most: int = LARGEST
) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """The head and the arrays of a message of at most `most` bytes."""
    if not isinstance(body, bytes) or not 8 < len(body) <= most:
        found = len(body) if isinstance(body, bytes) else "no bytes"
        raise WireError(f"a message must be at most {most} bytes. Got {found}.")
    if int.from_bytes(body[:8], "little") > min(16 * _HEAD, len(body)):
        raise WireError("the message is not in the wire format.")
    safetensors = need("safetensors", extra="flower", why="the wire format")
    try:
        parts = safetensors.deserialize(body)
        arrays = _arrays(parts)
        head = _head(arrays.pop("head"))
        if not all(name.startswith("a.") for name in arrays):
            raise ValueError
    except (*_OURS, safetensors.SafetensorError):
        raise WireError("the message is not in the wire format.") from None
    if head.pop("format", None) != FORMAT:
        raise WireError(
            f"the message must be of format {FORMAT}. Use the same version of persfl everywhere."
        )
    return head, under("a.", arrays)


def _arrays(parts: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, AnyArray]:
    """The arrays of a message, few enough and of the kinds that it may have."""
    arrays: dict[str, AnyArray] = {}
    for name, part in parts:
        if len(part["shape"]) > _AXES or len(arrays) > _ARRAYS:
            raise ValueError
        flat = np.frombuffer(bytes(part["data"]), dtype=_KINDS[part["dtype"]])
        arrays[name] = flat.reshape(part["shape"])
    return arrays


def _head(text: AnyArray) -> dict[str, Any]:
    if text.dtype != np.uint8 or text.ndim != 1 or text.size > _HEAD:
        raise ValueError
    head = json.loads(text.tobytes(), parse_constant=_refuse)
    if not isinstance(head, dict):
        raise ValueError
    return head


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


# What is in a message


def finite(array: AnyArray | None, shape: tuple[int, ...]) -> Array:
    """An array of finite float64 numbers of this shape, or a WireError."""
    sound = array is not None and array.dtype == np.float64 and array.shape == shape
    if array is None or not sound or not is_sensible(array):
        raise WireError(
            "numbers must be finite, of a sensible size, and as many as were asked for."
        )
    return array


def nested(prefix: str, arrays: Arrays) -> dict[str, AnyArray]:
    """Arrays under a prefix.

    >>> nested("3", {"vector": 1})
    {'3.vector': 1}
    """
    return prefixed(f"{prefix}.", arrays)


def within(prefix: str, arrays: Arrays) -> dict[str, AnyArray]:
    """The inverse of `nested`: those with this prefix, without it."""
    return under(f"{prefix}.", arrays)
