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

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from persfl.compact_protocol import Compact, Content, Kept, Struct, odd
from persfl.errors import InputError

_MARK = b"PAR1"
# what persfl writes with; pages of other makers may lie elsewhere
_MAKER = b"parquet-cpp"
# bytes of truth values and numbers, by Parquet's kinds
_WIDTHS = {0: 1, 1: 4, 2: 8, 4: 4, 5: 8}
_DEEPEST = 4  # the table, a column, its list, an element
_DEEPEST_OF_OTHERS = 50  # beyond that libraries run out of stack
_LIST = 128  # bytes that a list takes in memory, beside what it holds
_REPEATED = 2
_MOST_PARTS = 200_000  # of the head of a page
_MOST_OF_FOOTER = 2_000_000  # some twenty-five for each column of each group of rows
_SIZES = 16  # the field of a column where it counts levels
_TEXTS = 6  # the kind of values whose length it may tell there
# of a footer: the table's columns, rows and maker, and where those of a group are
_COLUMN = dict.fromkeys((3, 5, 6, 7, 9, 11, _SIZES))
_KEPT: Kept = {2: None, 3: None, 4: {1: {3: _COLUMN}, 3: None}, 6: None}
# kinds of pages, and the field of a page's head that counts its values
_DICTIONARY = 2
_PAGES = {0: 5, _DICTIONARY: 7, 3: 8}
_LATE = 100  # bytes of a column that old writers forgot to count


def refuse_bomb(content: bytes, *, most: int) -> None:
    """Stop where a file is not one of persfl's tables, or unpacks to more than `most` bytes."""
    footer = _footer(content)
    rows = _count(footer[3])
    widths, lists = _columns(footer[2])
    if not bytes(footer.get(6, b"")).startswith(_MAKER):
        raise odd()
    total = rows * (lists * _LIST)
    for group in footer[4]:
        if len(group[1]) != len(widths):
            raise odd()
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


class Column(NamedTuple):
    """What a column of one group of rows unpacks to, by the heads of its pages."""

    group: int
    name: str
    kind: int  # Parquet's number
    nested: bool  # inside lists and the like
    rows: int
    values: int
    size: int  # bytes of all pages
    largest: int  # of a page


def columns_of(content: Content) -> Iterator[Column]:
    """The columns of a file of anybody's, group by group.

    >>> import io, pandas as pd
    >>> made = io.BytesIO()
    >>> pd.DataFrame({"a": [0.0] * 1000}).to_parquet(made)
    >>> [(one.name, one.rows, one.values) for one in columns_of(made.getvalue())]
    [('a', 1000, 1001)]
    """
    # a part takes a byte or more
    footer = _footer(content, most=len(content), deepest=_DEEPEST_OF_OTHERS)
    leaves = _leaves(footer[2], _DEEPEST_OF_OTHERS)
    for number, group in enumerate(footer[4]):
        rows = _count(group[3])
        for chunk, leaf in zip(group[1], leaves, strict=True):
            about = chunk[3]
            told = _pages_in_turn(content, about)
            values = max(told.values, _count(about[5]))
            size = max(told.size, _count(about[6]))
            name = ".".join(bytes(part).decode() for part in about[3])
            nested = leaf.depth > 1
            yield Column(
                number, name, leaf.kind, nested, rows, values, size, told.largest
            )


def _room(content: bytes) -> int:
    """Heads of pages and dictionaries are no values: they may take as much as the file itself."""
    return len(content)


def _footer(
    content: Content, most: int = _MOST_OF_FOOTER, deepest: int = _DEEPEST
) -> Struct:
    """What stands at the end of a file: its columns, and where their pages are."""
    if len(content) < 12 or content[:4] != _MARK or content[-4:] != _MARK:
        raise odd()
    size = int.from_bytes(content[-8:-4], "little")
    begin = len(content) - 8 - size
    if begin < 4:
        raise odd()
    found = Compact(content, begin, len(content) - 8, most).struct(_KEPT)
    leaves = _leaves(found[2], deepest)
    for group in found[4]:
        for chunk, leaf in zip(group[1], leaves, strict=True):
            _refuse_sizes(chunk[3].get(_SIZES, {}), leaf)
    return found


class _Leaf(NamedTuple):
    """A column, and the places on the way to it."""

    kind: int  # of its values, by Parquet's numbers
    repeats: int  # places that may repeat
    there: int  # that may be empty or repeat
    depth: int


def _leaves(schema: Iterable[Struct], deepest: int) -> list[_Leaf]:
    found = []
    left = [(1, 0, 0)]  # elements still to come, at each depth, and levels there
    for element in schema:
        while left and left[-1][0] == 0:
            left.pop()
        if not left or len(left) > deepest:
            raise odd()
        more, repeats, there = left.pop()
        left.append((more - 1, repeats, there))
        # the table itself neither repeats nor is empty
        kind = element.get(3, 0) if len(left) > 1 else 0
        if kind not in (0, 1, _REPEATED):
            raise odd()
        here = repeats + (kind == _REPEATED), there + (kind > 0)
        if element.get(5) or 1 not in element:
            left.append((_count(element[5]), *here))
        else:
            found.append(_Leaf(element[1], *here, len(left) - 1))
    return found


def _refuse_sizes(sizes: Struct, leaf: _Leaf) -> None:
    """Stop where a column counts levels or texts that it has not: pyarrow would end the process."""
    levels = len(sizes.get(2, [])), len(sizes.get(3, []))
    sound = levels[0] in (0, leaf.repeats + 1) and levels[1] in (0, leaf.there + 1)
    if not sound or (1 in sizes and leaf.kind != _TEXTS):
        raise odd()


def _columns(schema: Iterable[Struct]) -> tuple[list[int], int]:
    """How wide the values of each column are, and how many columns hold lists."""
    widths = []
    lists = 0
    left = [1]  # how many elements are still to come, at each depth
    for element in schema:
        while left and left[-1] == 0:
            left.pop()
        if not left or len(left) > _DEEPEST:
            raise odd()
        left[-1] -= 1
        lists += element.get(3) == _REPEATED
        if 5 in element:
            left.append(_count(element[5]))
        elif element[1] in _WIDTHS:
            widths.append(_WIDTHS[element[1]])
        else:
            raise odd()  # texts: one of them may stand in every row
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
        raise odd()
    largest = values = 0
    while at < end:
        reader = Compact(content, at, end, _MOST_PARTS)
        head = reader.struct()
        largest = max(largest, _count(head[2]))
        values += sum(_count(head[kind][1]) for kind in (5, 7, 8) if kind in head)
        at = reader.at + _count(head[3])
    if at != end:
        raise odd()
    return largest, values


class _Pages(NamedTuple):
    values: int
    size: int
    largest: int


def _pages_in_turn(content: Content, about: Struct) -> _Pages:
    """The pages of a column of anybody's: pyarrow reads on until it has all values."""
    at = _count(about[9])
    if 0 < _count(about.get(11, 0)) < at:
        at = about[11]
    end = min(at + _count(about[7]) + _LATE, len(content))
    values = read = size = largest = 0
    while at < end and read < _count(about[5]):
        reader = Compact(content, at, end, _MOST_PARTS)
        head = reader.struct()
        largest = max(largest, _count(head[2]))
        size += _count(head[2])
        if head[1] in _PAGES:
            told = _count(head[_PAGES[head[1]]][1])
            values += told
            read += told if head[1] != _DICTIONARY else 0
        at = reader.at + _count(head[3])
    return _Pages(values, size, largest)


def _count(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise odd()
    return value
