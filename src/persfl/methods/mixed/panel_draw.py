"""Who stands for a large fleet: devices drawn by the seed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from persfl.seeds import distinct, stream
from persfl.types import IntArray

# devices at most that may be the centre of another; time and memory grow with them
CENTRES = 1000


def some_centres(n: int, seed: int, most: int = CENTRES) -> IntArray:
    """The devices that may be centres: all, or so many drawn by the seed."""
    if n <= most:
        return np.arange(n)
    place = stream(seed, "centres")
    drawn = distinct(place, np.zeros(1, dtype=np.int64), np.array([n]), most)
    return np.sort(drawn[0])


class Panel(NamedTuple):
    """Who is in the panel, and who of them may be a centre; positions in the fleet, in order."""

    devices: IntArray
    centres: IntArray

    @staticmethod
    def drawn(n: int, seed: int, most: int) -> Panel:
        """By the seed alone.

        >>> panel = Panel.drawn(10_000, 0, 50)
        >>> len(panel.devices), panel.place_of(panel.centres[:2]).tolist()
        (50, [0, 1])
        """
        devices = some_centres(n, seed, most)
        return Panel(devices, devices[some_centres(len(devices), seed)])

    def place_of(self, devices: IntArray) -> IntArray:
        """The place of each of these devices among the centres, -1 for none."""
        at = np.searchsorted(self.centres, devices)
        at = np.minimum(at, len(self.centres) - 1)
        return np.where(self.centres[at] == devices, at, -1)
