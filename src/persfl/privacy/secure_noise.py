"""Normal noise in whole steps of a grid, added to sums that are whole steps, too.

Numbers of a computer are rounded, and the low bits of a noised one can tell what was noised
(Mironov 2012). So what rows add is cut to whole multiples of a public step before it is summed,
sums are exact, and noise is whole multiples as well. Since s + round(N) = round(s + N) for whole s,
what leaves is a rounding of a sum with normal noise, which tells no more than that sum does. The
edges between steps are where they should be to within 2e-9 of a step (up to seven deviations): the
chance of each step is right to within 1e-8 of itself.

In real use every bit comes from the operating system's secure source. Simulations, whose rows are
in one place anyway, take theirs from a seed, so that results can be had again.
"""

from __future__ import annotations

import secrets
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from persfl.seeds import Stream
from persfl.types import Array, IntArray

FINE = 2.0**-20  # a step of the grid, in standard deviations of the noise


class NoiseSource(Protocol):
    """Where random bits come from."""

    def words(self, count: int) -> NDArray[np.uint64]:
        """So many independent words of 64 fair bits."""


class SystemNoise:
    """The operating system's secure source: nobody can guess or repeat what it gives."""

    def words(self, count: int) -> NDArray[np.uint64]:
        """Fresh ones."""
        return np.frombuffer(secrets.token_bytes(8 * count), dtype=np.uint64)


class SeededNoise:
    """For simulations: the same place gives the same noise. It protects nothing.

    >>> from persfl.seeds import stream
    >>> a, b = (normals(SeededNoise(stream(7, "noise")), 3) for _ in range(2))
    >>> bool((a == b).all())
    True
    """

    def __init__(self, place: Stream) -> None:
        self._generator = place.generator()

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next ones."""
        return self._generator.integers(0, 2**64, size=count, dtype=np.uint64)


def normals(source: NoiseSource, count: int) -> Array:
    """(count,) standard normal numbers, each from 128 bits.

    By the inverse of the distribution function, from the tail inwards, where floating point is
    finest: a tail chance of 53 + 53 bits, and a sign.
    """
    words = source.words(2 * count).reshape(2, count)
    coarse = (words[0] >> np.uint64(11)).astype(np.float64)
    fine = ((words[1] >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    tail = (coarse + fine) * 2.0**-54  # above 0 and at most a half
    sign = np.where(words[0] & np.uint64(1), 1.0, -1.0)
    return np.asarray(sign * -ndtri(np.minimum(tail, 0.5)))


def whole_steps(values: Array, step: float) -> IntArray:
    """Values as whole multiples of a step, none longer than it was."""
    return np.asarray(np.trunc(values / step), dtype=np.int64)


def noised(
    total: IntArray, deviation: float, step: float, source: NoiseSource
) -> Array:
    """Whole steps with whole steps of noise, as plain numbers.

    >>> told = noised(np.zeros(4000, dtype=np.int64), 3.0, 3.0 * FINE, SystemNoise())
    >>> bool((told / (3.0 * FINE) % 1 == 0).all()), bool(2.7 < told.std() < 3.3)
    (True, True)
    """
    flat = total.reshape(-1)
    noise = np.rint(normals(source, len(flat)) * (deviation / step)).astype(np.int64)
    return np.asarray((flat + noise) * step).reshape(total.shape)
