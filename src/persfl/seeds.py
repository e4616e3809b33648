"""Randomness by name: every random number is a function of a seed and a path.

A `Stream` is a place in a tree of random numbers. `stream(seed, "sample", r, target)` is the same
place in every fleet, in every process and after every interruption, so results cannot depend on who
computed them or in which order. Path entries may be arrays: then the stream has leading axes, one
place per entry, and draws for all of them at once.

The numbers are SplitMix64: output `k` of a place is `mix(key + k * gamma)`. NumPy's own generators
have state and cannot be drawn for a thousand keys at once; where a library needs one,
`Stream.generator()` makes it.

>>> stream(0, "sample", 3).uniform(2).round(3).tolist()
[0.805, 0.542]
>>> both = stream(0, "sample", np.array([3, 4])).uniform(2)
>>> both.shape, both[0].round(3).tolist()
((2, 2), [0.805, 0.542])
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from persfl.compiled import kernels
from persfl.errors import InputError

Part = int | str | NDArray[Any]

_MASK = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15
# keeps the keys of children apart from a place's own numbers
CHILD = 0xD1B54A32D192ED03
MIXERS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def _mix_int(x: int) -> int:
    """As `_mix`, without its loop: a third of the time in which one target draws its peers."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    for by, times in MIXERS:
        x = (x ^ (x >> np.uint64(by))) * np.uint64(times)
    return x ^ (x >> np.uint64(31))


@dataclass(frozen=True, slots=True)
class Stream:
    """A place in the tree of random numbers, or an array of places."""

    key: int | NDArray[np.uint64]

    def at(self, *path: Part) -> Stream:
        """The place below this one.

        >>> stream(0).at("a", 1) == stream(0, "a", 1)
        True
        """
        key = self.key
        for part in path:
            if isinstance(part, str):
                part = zlib.crc32(part.encode())
            if isinstance(key, int) and not isinstance(part, np.ndarray):
                key = _mix_int(((key ^ CHILD) + GAMMA * (int(part) + 1)) & _MASK)
            else:
                number = np.atleast_1d(np.asarray(part)).astype(np.uint64)
                step = (number + np.uint64(1)) * np.uint64(GAMMA)
                here = np.atleast_1d(np.asarray(key, dtype=np.uint64))
                key = _mix((here ^ np.uint64(CHILD)) + step)
        return Stream(key)

    def uniform(self, *shape: int) -> NDArray[np.float64]:
        """Numbers in [0, 1) of shape (leading axes, *shape); a longer draw begins with a
        shorter one.
        """
        count = int(np.prod(shape))
        steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(GAMMA)
        keys = self.keys
        bits = _mix(keys[..., None] + steps) >> np.uint64(11)
        lead = () if isinstance(self.key, int) else keys.shape
        return np.asarray((bits * 2.0**-53).reshape(lead + shape), dtype=np.float64)

    def __getitem__(
        self, part: int | slice | tuple[slice | None, ...] | NDArray[np.int64]
    ) -> Stream:
        """Some of the places of a stream with leading axes."""
        return Stream(self.keys[part])

    @property
    def keys(self) -> NDArray[np.uint64]:
        """The keys as an array with at least one axis."""
        return np.atleast_1d(np.asarray(self.key, dtype=np.uint64))

    def generator(self) -> np.random.Generator:
        """A NumPy generator that starts at this (single) place."""
        if not isinstance(self.key, int):
            raise InputError(
                f"a generator starts at one place. Got a stream of {self.keys.size}."
            )
        return np.random.default_rng(self.key)

    def integer(self) -> int:
        """A number below 2**31 - 1, as scikit-learn's `random_state` takes it."""
        if not isinstance(self.key, int):
            raise InputError(
                f"an integer is drawn at one place. Got a stream of {self.keys.size}."
            )
        return _mix_int((self.key + GAMMA) & _MASK) % (2**31 - 1)


def stream(seed: int, *path: Part) -> Stream:
    """The place `path` in the tree that grows from `seed`."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise InputError(f"seed must be a whole number. Got {seed!r}.")
    return Stream(_mix_int(int(seed) & _MASK)).at(*path)


def distinct(
    place: Stream, who: NDArray[np.int64], counts: NDArray[np.int64], size: int
) -> NDArray[np.int64]:
    """For every entry of `who`, `size` different numbers below its count (Floyd's algorithm); each
    set is equally likely.

    `counts` has an entry per entry of `who`, or one for all. Time and memory grow with `size`,
    never with the counts: drawing 20 of a million touches 20 numbers. A row depends on the place
    and on its own entry of `who` only.

    >>> rows = distinct(stream(0, "who"), np.arange(3), np.array([5, 5, 10**9]), 4)
    >>> [len(set(row)) for row in rows.tolist()]
    [4, 4, 4]
    """
    fast = kernels()
    if fast is not None:
        return np.asarray(fast.distinct(np.uint64(place.key), who, counts, size))
    numbers = place.at(who).uniform(size)
    drawn = np.empty((len(who), size), dtype=np.int64)
    for k in range(size):
        last = counts - size + k
        pick = (numbers[:, k] * (last + 1)).astype(np.int64)
        taken = (drawn[:, :k] == pick[:, None]).any(axis=1)
        drawn[:, k] = np.where(taken, last, pick)
    return drawn
