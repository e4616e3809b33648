"""Into which pieces the sets of rows that were answered from cut a device's rows."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Mask: TypeAlias = NDArray[np.bool_]
Pieces: TypeAlias = NDArray[np.int32]


def cut(labels: Pieces, chosen: Mask, least: int) -> Pieces | None:
    """The pieces that a set of rows makes of those before; None if one gets too small.

    Pieces are a label per row, 0 where it was never answered from.

    >>> cut(
    ...     np.array([1, 1, 1, 1, 0, 0]), np.array([1, 1, 0, 0, 1, 1], dtype=bool), 2
    ... ).tolist()
    [3, 3, 1, 1, 2, 2]
    """
    inside = np.bincount(labels[chosen], minlength=1)
    whole = np.bincount(labels, minlength=1)
    inside = np.pad(inside, (0, len(whole) - len(inside)))
    parted = (inside > 0) & (inside < whole)
    small = parted & ((inside < least) | (whole - inside < least))
    small[0] = 0 < inside[0] < least
    if small.any():
        return None
    parted[0] = inside[0] > 0
    renamed = np.arange(len(whole))
    renamed[parted] = len(whole) + np.arange(int(parted.sum()))
    return np.where(chosen, renamed[labels], labels).astype(np.int32)
