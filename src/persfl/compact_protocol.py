"""Thrift's compact protocol, in which Parquet says where what is, read without a library: that
would believe what it says.

Honest writers tell a field once, under a number of 16 bits: what libraries make of others differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from mmap import mmap
from typing import Any

from persfl.errors import InputError

Struct = dict[int, Any]  # values by the numbers of their fields
Content = bytes | mmap  # of a file
Kept = Mapping[int, Any] | None  # fields to keep, and those inside them; None keeps all
# Kinds of values in the compact protocol.
_TRUE = 1
_FALSE = 2
_BYTE = 3
_DOUBLE = 7
_BINARY = 8
_STRUCT = 12
_SEQUENCE = 9
_SET = 10
_MAP = 11
_NESTED = 12
_NOTHING: Mapping[int, Any] = {}
_BITS = {4: 15, 5: 31, 6: 63}  # of whole numbers, by their kinds, beside the sign


class Compact:
    """Reads Thrift's compact protocol: structs as dicts by the numbers of their fields."""

    def __init__(self, content: Content, at: int, end: int, most: int) -> None:
        self.content = content
        self.at = at
        self.end = end
        self._left = most

    def struct(self, kept: Kept = None, depth: int = 0) -> Struct:
        """The struct that begins here; an empty place stands for a field that is not kept."""
        found: Struct = {}
        number = 0
        while (head := self._byte()) != 0:
            step = head >> 4
            number = number + step if step else self._signed()
            if number in found or not 0 < number < 2**15:
                raise odd()
            inside = kept.get(number, _NOTHING) if kept is not None else None
            value = self._value(head & 15, depth, inside)
            found[number] = None if inside is _NOTHING else value
        return found

    def _value(self, kind: int, depth: int, kept: Kept = None) -> Any:
        self._left -= 1
        if depth > _NESTED or self._left < 0:
            raise odd()
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind in _BITS:
            value = self._signed()
            if not -(2 ** _BITS[kind]) <= value < 2 ** _BITS[kind]:
                raise odd()
            return value
        if kind == _BYTE:
            return self._byte()
        if kind == _DOUBLE:
            return self._bytes(8)
        if kind == _BINARY:
            return self._bytes(self._unsigned())
        if kind in (_SEQUENCE, _SET):
            return self._sequence(depth + 1, kept)
        if kind == _STRUCT:
            return self.struct(kept, depth + 1)
        if kind == _MAP:
            return self._map(depth + 1)
        raise odd()

    def _sequence(self, depth: int, kept: Kept) -> list[Any]:
        head = self._byte()
        size = head >> 4
        kind = head & 15
        if size == 15:
            size = self._unsigned()
        if size > self._left:
            raise odd()
        return [self._element(kind, depth, kept) for _ in range(size)]

    def _map(self, depth: int) -> list[Any]:
        size = self._unsigned()
        if not size:
            return []
        kinds = self._byte()
        if size > self._left:
            raise odd()
        pair = (kinds >> 4, kinds & 15)
        return [[self._element(kind, depth) for kind in pair] for _ in range(size)]

    def _element(self, kind: int, depth: int, kept: Kept = None) -> Any:
        """A value in a list: there a truth value takes a byte of its own."""
        plain = _BYTE if kind in (_TRUE, _FALSE) else kind
        return self._value(plain, depth, kept)

    def _byte(self) -> int:
        return self._bytes(1)[0]

    def _bytes(self, size: int) -> bytes:
        begin = self.at
        if size > self.end - begin:
            raise odd()
        self.at = begin + size
        return self.content[begin : self.at]

    def _unsigned(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise odd()

    def _signed(self) -> int:
        """As Thrift has them: 0, -1, 1, -2, 2, ..."""
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)


def odd() -> InputError:
    """What is no file as persfl writes it."""
    return InputError("it is not a table as persfl writes one.")
