"""How much is done at a time: the one rule for everything that is taken in pieces.

A result never depends on the pieces, except in the last bit where a library adds in blocks: so
each caller keeps its own room.
"""

from __future__ import annotations

CACHE = 32 * 2**20  # bytes that stay in a processor's cache


def batches(count: int, bytes_each: int, room: int = CACHE) -> list[slice]:
    """`count` things in order, as many at a time as fit into so many bytes, at least one.

    >>> batches(5, bytes_each=10, room=25)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 6, None)]
    """
    size = max(1, room // max(1, bytes_each))
    return [slice(first, first + size) for first in range(0, count, size)]
