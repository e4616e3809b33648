"""Many devices in parts whose rows, gathered, fit into little memory."""

from __future__ import annotations

import numpy as np

from persfl.devices import Devices
from persfl.learners.linear import Linear
from persfl.types import IntArray

_LARGEST = 4 * 2**20  # bytes: rows that many steps go over should stay in the cache


def spans(
    learner: Linear, rows: Devices, who: IntArray | None = None, *, wide: int = 1
) -> list[tuple[int, int]]:
    """From where to where in `who` (all devices unless said otherwise); `wide` models go with each
    of them.

    >>> from persfl import Linear
    >>> spans(Linear(), Devices.of([([[1.0]], [1.0])] * 3, quiet=True))
    [(0, 3)]
    """
    who = np.arange(len(rows)) if who is None else who
    longest = int(rows.counts[who].max(initial=1))
    classes = learner.classes
    each = 8 * (
        longest * (2 * rows.features + 3 * classes * (wide + 1))
        + 4 * wide * learner.size(rows.features)
    )
    size = max(1, _LARGEST // each)
    return [(lo, min(lo + size, len(who))) for lo in range(0, len(who), size)]
