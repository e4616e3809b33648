"""How much a Parquet file unpacks to, by its own heads, before any library unpacks it.

A repeated value costs nothing in this format: a file of 400 bytes can stand for gigabytes. The
library that reads it believes what the file says, and ends the process where some of it makes no
sense. So the parts that say sizes (in Thrift's compact protocol) are read here first: the footer,
and the head of every page. Only what persfl itself writes passes: numbers, and lists of numbers.

>>> import io, pandas as pd
>>> made = io.BytesIO()
>>> pd.DataFrame({"a": [0.0] * 1000}).to_parquet(made)
>>> refuse_bomb(made.getvalue(), most=10_000)
>>> refuse_bomb(made.getvalue(), most=7_000)
Traceback (most recent call last):
...
persfl.errors.InputError: it unpacks to too much.
"""

from __future__ import annotations

from collections.abc import Iterable
from mmap import mmap
from typing import Any

from persfl.errors import InputError

Struct = dict[int, Any]  # values by the numbers of their fields
Content = bytes | mmap  # of a file
_MARK = b"PAR1"
# what persfl writes with; pages of other makers may lie elsewhere
_MAKER = b"parquet-cpp"
# bytes of truth values and numbers, by Parquet's kinds
_WIDTHS = {0: 1, 1: 4, 2: 8, 4: 4, 5: 8}
_DEEPEST = 4  # the table, a column, its list, an element
_LIST = 128  # bytes that a list takes in memory, beside what it holds
_REPEATED = 2
# Kinds of values in the compact protocol.
_TRUE = 1
_FALSE = 2
_BYTE = 3
_DOUBLE = 7
_WHOLE = (4, 5, 6)
_BINARY = 8
_STRUCT = 12
_SEQUENCE = 9
_SET = 10
_MAP = 11
_MOST_PARTS = 200_000  # of the head of a page
_MOST_OF_FOOTER = 2_000_000  # some twenty-five for each column of each group of rows
_SIZES = 16  # the field of a column where it counts levels
_NESTED = 12


def refuse_bomb(content: bytes, *, most: int) -> None:
    """Stop where a file is not one of persfl's tables, or unpacks to more than `most` bytes."""
    footer = _footer(content)
    rows = _count(footer[3])
    widths, lists = _columns(footer[2])
    if not bytes(footer.get(6, b"")).startswith(_MAKER):
        raise _odd()
    total = rows * (lists * _LIST)
    for group in footer[4]:
        if len(group[1]) != len(widths):
            raise _odd()
        for chunk, width in zip(group[1], widths, strict=True):
            size, values = _pages(content, chunk)
            total += values * width
            if size > most + _room(content):
                raise InputError("it unpacks to too much.")
    if max(total, rows) > most:
        raise InputError("it unpacks to too much.")


def refuse_large(content: Content, *, most: int) -> None:
    """Stop where the columns of a file unpack to more than `most` bytes: of texts each once, which
    is how they must be read.

    >>> import io, pyarrow as pa, pyarrow.parquet as pq
    >>> made = io.BytesIO()
    >>> pq.write_table(pa.table({"a": ["text"] * 9_000}), made)
    >>> refuse_large(made.getvalue(), most=80_000)
    >>> refuse_large(made.getvalue(), most=9_000)
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: it unpacks to too much.
    """
    total = 0
    for group in _footer(content)[4]:
        for chunk in group[1]:
            size, values = _pages(content, chunk)
            total += size + 8 * max(values, _count(group[3]))
    if total > most:
        raise InputError("it unpacks to too much.")


def _room(content: bytes) -> int:
    """Heads of pages and dictionaries are no values: they may take as much as the file itself."""
    return len(content)


def _footer(content: Content) -> Struct:
    """What stands at the end of a file: its columns, and where their pages are."""
    if len(content) < 12 or content[:4] != _MARK or content[-4:] != _MARK:
        raise _odd()
    size = int.from_bytes(content[-8:-4], "little")
    begin = len(content) - 8 - size
    if begin < 4:
        raise _odd()
    reader = _Compact(content, begin, len(content) - 8, _MOST_OF_FOOTER)
    found = reader.struct()
    levels = _levels(found[2])
    for group in found[4]:
        for chunk, each in zip(group[1], levels, strict=True):
            _refuse_histograms(chunk[3].get(_SIZES, {}), each)
    return found


def _levels(schema: Iterable[Struct]) -> list[tuple[int, int]]:
    """How many of the places on the way to each column may repeat, and how many may be empty or
    repeat.
    """
    found = []
    left = [(1, 0, 0)]  # elements still to come, at each depth, and levels there
    for element in schema:
        while left and left[-1][0] == 0:
            left.pop()
        if not left or len(left) > _DEEPEST:
            raise _odd()
        more, repeats, there = left.pop()
        left.append((more - 1, repeats, there))
        kind = element.get(3, 0)
        if kind not in (0, 1, _REPEATED):
            raise _odd()
        here = repeats + (kind == _REPEATED), there + (kind > 0)
        if 5 in element:
            left.append((_count(element[5]), *here))
        else:
            found.append(here)
    return found


def _refuse_histograms(sizes: Struct, levels: tuple[int, int]) -> None:
    """Stop where a column counts other levels than it has: pyarrow would end the process."""
    for field, most in zip((2, 3), levels, strict=True):
        if len(sizes.get(field, [])) not in (0, most + 1):
            raise _odd()


def _columns(schema: Iterable[Struct]) -> tuple[list[int], int]:
    """How wide the values of each column are, and how many columns hold lists."""
    widths = []
    lists = 0
    left = [1]  # how many elements are still to come, at each depth
    for element in schema:
        while left and left[-1] == 0:
            left.pop()
        if not left or len(left) > _DEEPEST:
            raise _odd()
        left[-1] -= 1
        lists += element.get(3) == _REPEATED
        if 5 in element:
            left.append(_count(element[5]))
        elif element[1] in _WIDTHS:
            widths.append(_WIDTHS[element[1]])
        else:
            raise _odd()  # texts: one of them may stand in every row
    return widths, lists


def _pages(content: Content, chunk: Struct) -> tuple[int, int]:
    """The size of the largest page of a column, unpacked, and how many values all of them hold."""
    about = chunk[3]
    if _count(about[5]) == 0:
        return 0, 0  # then no page is looked at
    at = _count(about[9])
    if 0 < _count(about.get(11, 0)) < at:
        at = about[11]  # a dictionary comes first
    end = at + _count(about[7])
    if end > len(content):
        raise _odd()
    largest = values = 0
    while at < end:
        reader = _Compact(content, at, end)
        head = reader.struct()
        largest = max(largest, _count(head[2]))
        values += sum(_count(head[kind][1]) for kind in (5, 7, 8) if kind in head)
        at = reader.at + _count(head[3])
    if at != end:
        raise _odd()
    return largest, values


def _count(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise _odd()
    return value


class _Compact:
    """Reads Thrift's compact protocol: structs as dicts by the numbers of their fields."""

    def __init__(
        self, content: Content, at: int, end: int, most: int = _MOST_PARTS
    ) -> None:
        self.content = content
        self.at = at
        self.end = end
        self._left = most

    def struct(self, depth: int = 0) -> Struct:
        """The struct that begins here."""
        found: Struct = {}
        number = 0
        while (head := self._byte()) != 0:
            step = head >> 4
            number = number + step if step else self._signed()
            found[number] = self._value(head & 15, depth)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        self._left -= 1
        if depth > _NESTED or self._left < 0:
            raise _odd()
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind in _WHOLE:
            return self._signed()
        if kind == _BYTE:
            return self._byte()
        if kind == _DOUBLE:
            return self._bytes(8)
        if kind == _BINARY:
            return self._bytes(self._unsigned())
        if kind in (_SEQUENCE, _SET):
            return self._sequence(depth + 1)
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind == _MAP:
            return self._map(depth + 1)
        raise _odd()

    def _sequence(self, depth: int) -> list[Any]:
        head = self._byte()
        size = head >> 4
        kind = head & 15
        if size == 15:
            size = self._unsigned()
        if size > self._left:
            raise _odd()
        return [self._element(kind, depth) for _ in range(size)]

    def _map(self, depth: int) -> list[Any]:
        size = self._unsigned()
        if not size:
            return []
        kinds = self._byte()
        if size > self._left:
            raise _odd()
        pair = (kinds >> 4, kinds & 15)
        return [[self._element(kind, depth) for kind in pair] for _ in range(size)]

    def _element(self, kind: int, depth: int) -> Any:
        """A value in a list: there a truth value takes a byte of its own."""
        return self._value(_BYTE if kind in (_TRUE, _FALSE) else kind, depth)

    def _byte(self) -> int:
        return self._bytes(1)[0]

    def _bytes(self, size: int) -> bytes:
        begin = self.at
        if size > self.end - begin:
            raise _odd()
        self.at = begin + size
        return self.content[begin : self.at]

    def _unsigned(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise _odd()

    def _signed(self) -> int:
        """As Thrift has them: 0, -1, 1, -2, 2, ..."""
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)


def _odd() -> InputError:
    return InputError("it is not a table as persfl writes one.")
