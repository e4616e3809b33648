"""What a message says, and how it is read: whole numbers, parts, digests, a polite no."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from numpy.typing import NDArray

from persfl.wire.codec import WireError

MOST = 10_000  # questions in one message
# Which questions a device knows. Devices of persfl 0.2 and before know 1, and do not say so; 2 are
# the questions of a blend that asked for refits of linear models; 3 had none for pools of classes.
PROTOCOL = 4

Head: TypeAlias = Mapping[str, Any]  # what JSON holds
Arrays: TypeAlias = Mapping[str, NDArray[Any]]
Content: TypeAlias = tuple[dict[str, Any], dict[str, NDArray[Any]]]


class Refused(Exception):
    """A polite no: a code, and nothing else."""


class Responder(Protocol):
    """Who answers messages: `persfl.federation.device.Device` is one."""

    def reply(self, kind: str, body: Any) -> bytes:
        """The answer to a message of this kind, as bytes of the wire."""


def whole_of(head: Head, name: str, most: int = 2**53) -> int:
    """A whole number of a message.

    >>> whole_of({"round": -1}, "round")
    Traceback (most recent call last):
    ...
    persfl.wire.codec.WireError: round must be a whole number of at least 0.
    """
    value = head.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise WireError(f"{name} must be a whole number of at least 0.")
    return value


def askers_of(names: object) -> list[str]:
    """On whose behalf each part of a question is sent; "" is the run itself."""
    if (
        not isinstance(names, list)
        or len(names) > MOST
        or not all(isinstance(name, str) and len(name) <= 200 for name in names)
    ):
        raise WireError("a question must say on whose behalf it is asked.")
    return names


def size_of(arrays: Arrays) -> int:
    """Bytes of arrays."""
    return sum(array.nbytes for array in arrays.values())


def numbers_of(arrays: Arrays) -> int:
    """Numbers of arrays."""
    return sum(int(array.size) for array in arrays.values())


def parts_of(arrays: Arrays) -> dict[str, dict[str, NDArray[Any]]]:
    """Arrays by the first part of their names, all at once: a message may have ten thousand parts.

    >>> parts_of({"q0.vector": 1, "q0.a.b": 2, "targets": 3})
    {'q0': {'vector': 1, 'a.b': 2}}
    """
    found: dict[str, dict[str, NDArray[Any]]] = {}
    for name, array in arrays.items():
        first, dot, rest = name.partition(".")
        if dot:
            found.setdefault(first, {})[rest] = array
    return found


def digest_of(about: object, *parts: Arrays) -> str:
    """The same for the same question, whenever it is put; `about` holds everything else that
    its answer depends on.
    """
    found = hashlib.sha256(repr(about).encode())
    for arrays in parts:
        for key in sorted(arrays):
            array = arrays[key]
            found.update(repr((key, array.dtype.str, array.shape)).encode())
            found.update(array.tobytes())
    return found.hexdigest()
