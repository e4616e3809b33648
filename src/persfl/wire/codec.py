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
from collections.abc import Mapping
from typing import Any

import numpy as np

from persfl.errors import PersflError, need

FORMAT = 1
LARGEST = 64 * 2**20  # bytes of one message
_HEAD = 2**20  # bytes of a head, and of the list of arrays
_ARRAYS = 50_000
_AXES = 4
_KINDS = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "U8": "|u1"}
_NAMES = {np.dtype(kind): name for name, kind in _KINDS.items()}


class WireError(PersflError, ValueError):
    """Something that came over the wire is not what it should be; the text never repeats what
    came.
    """


def pack(head: Mapping[str, Any], arrays: Mapping[str, Any] | None = None) -> bytes:
    """A message; the head holds what JSON holds, arrays are float64, float32, int64 or uint8."""
    safetensors = need("safetensors.numpy", extra="flower", why="the wire format")
    parts = {
        "head": np.frombuffer(
            json.dumps({"format": FORMAT, **head}, allow_nan=False).encode(),
            dtype=np.uint8,
        )
    }
    for name, array in (arrays or {}).items():
        parts[f"a.{name}"] = np.ascontiguousarray(array)
    odd = [
        name
        for name, array in parts.items()
        if array.dtype.newbyteorder("<") not in _NAMES
    ]
    if odd:
        raise WireError(
            "arrays of a message must be float64, float32, int64 or uint8. Got"
            f" {parts[odd[0]].dtype}."
        )
    return bytes(safetensors.save(parts))


def unpack(body: Any, *, most: int = LARGEST) -> tuple[dict[str, Any], dict[str, Any]]:
    """The head and the arrays of a message of at most `most` bytes."""
    if not isinstance(body, bytes) or not 8 < len(body) <= most:
        raise WireError(
            f"a message must be at most {most} bytes. Got"
            f" {len(body) if isinstance(body, bytes) else 'no bytes'}."
        )
    if int.from_bytes(body[:8], "little") > min(16 * _HEAD, len(body)):
        raise WireError("the message is not in the wire format.")
    safetensors = need("safetensors", extra="flower", why="the wire format")
    try:
        arrays: dict[str, Any] = {}
        for name, part in safetensors.deserialize(body):
            if (
                part["dtype"] not in _KINDS
                or len(part["shape"]) > _AXES
                or len(arrays) > _ARRAYS
            ):
                raise ValueError
            arrays[name] = np.frombuffer(
                bytes(part["data"]), dtype=_KINDS[part["dtype"]]
            ).reshape(part["shape"])
        text = arrays.pop("head")
        if (
            text.dtype != np.uint8
            or text.ndim != 1
            or text.size > _HEAD
            or any(not name.startswith("a.") for name in arrays)
        ):
            raise ValueError
        head = json.loads(text.tobytes(), parse_constant=_refuse)
        if not isinstance(head, dict):
            raise ValueError
    except (
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        OverflowError,
        MemoryError,
        RecursionError,
        AttributeError,
    ):
        raise WireError("the message is not in the wire format.") from None
    except Exception as error:
        if type(error).__name__ != "SafetensorError":
            raise
        raise WireError("the message is not in the wire format.") from None
    if head.pop("format", None) != FORMAT:
        raise WireError(
            f"the message must be of format {FORMAT}. Use the same version of persfl everywhere."
        )
    return head, {name.removeprefix("a."): array for name, array in arrays.items()}


def _refuse(constant: str) -> Any:
    raise ValueError(constant)
