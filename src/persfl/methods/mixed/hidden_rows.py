"""Which rows are hidden together: at all devices at once, so that nothing leaks between them.

at random      a fifth of every device's rows at a time
blocks         whole dates (or any key) at a time, for rows of one date that hang together
ordered        the future: what comes later is predicted by what came before
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from persfl.devices import Devices
from persfl.seeds import stream
from persfl.types import Array, IntArray

PARTS = 5


class Hidden(NamedTuple):
    """Parts of the rows: what is learned from, and what is judged by."""

    learn: tuple[int, ...]
    judge: tuple[int, ...]


class HiddenRows(NamedTuple):
    """`part` (rows,) says to which of `PARTS` a row belongs; `folds` what is hidden together."""

    part: IntArray
    folds: Sequence[Hidden]


def hidden_rows(
    rows: Devices, seed: int, *, ordered: bool = False, blocks: Array | None = None
) -> HiddenRows:
    """The parts of these rows, drawn by the seed."""
    within = np.arange(len(rows.y)) - rows.start[rows.owner]
    if ordered:
        part = within * PARTS // np.maximum(rows.counts[rows.owner], 1)
    elif blocks is not None:
        _, at = np.unique(blocks, return_inverse=True)
        luck = stream(seed, "hidden", np.arange(int(at.max()) + 1)).uniform()
        part = (np.argsort(np.argsort(luck)) % PARTS)[at]
    else:
        luck = stream(seed, "hidden", rows.owner, within).uniform()
        order = np.lexsort((luck, rows.owner))
        part = np.empty(len(rows.y), dtype=np.int64)
        # dealt in turn within a device, beginning anywhere: three rows are not always the first
        turn = stream(seed, "turn", np.arange(len(rows))).uniform() * PARTS
        part[order] = (within + turn.astype(np.int64)[rows.owner]) % PARTS
    every = tuple(range(PARTS))
    if ordered:
        folds = [Hidden(every[:k], (k,)) for k in range(2, PARTS)]
    else:
        there = np.unique(part)
        folds = [
            Hidden(tuple(p for p in every if p != k), (k,)) for k in there.tolist()
        ]
    return HiddenRows(part, folds)
