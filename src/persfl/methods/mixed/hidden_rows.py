"""Which rows are hidden together: at all devices at once, so that nothing leaks between them.

at random      a fifth of every device's rows at a time
blocks         whole dates (or any key) at a time, for rows of one date that hang together
ordered        the future: what comes later is predicted by what came before, at each device
time           likewise, by a clock that all devices share; a gap may lie between
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from persfl.devices import Devices
from persfl.evaluation.row_order import Fold, RowOrder, hidden_folds, row_parts
from persfl.seeds import stream
from persfl.types import IntArray

PARTS = 5


class Hidden(NamedTuple):
    """Parts of the rows: what is learned from, and what is judged by."""

    learn: tuple[int, ...]
    judge: tuple[int, ...]


class HiddenRows(NamedTuple):
    """`part` (rows,) says to which of the parts a row belongs; `folds` what is hidden together."""

    part: IntArray
    folds: Sequence[Hidden]

    @property
    def parts(self) -> int:
        """How many parts there are."""
        known = [k for fold in self.folds for k in (*fold.learn, *fold.judge)]
        return 1 + max(int(self.part.max()), *known)


def hidden_rows(
    rows: Devices,
    seed: int,
    order: RowOrder | None = None,
    *,
    ordered: bool = False,
    blocks: IntArray | None = None,
) -> HiddenRows:
    """The parts of these rows, drawn by the seed; `ordered` and `blocks` are short for an `order`
    that says no more.
    """
    order = order or RowOrder(ordered=ordered, blocks=blocks)
    if not order.plain:
        folds = hidden_folds(rows, order, PARTS, seed=seed)
        if folds:
            return _of_folds(folds)
    # nobody has a past where nobody has two rows
    ordered = order.ordered and int(rows.counts.max(initial=0)) > 1
    within = np.arange(len(rows.y)) - rows.start[rows.owner]
    if ordered:
        part = within * PARTS // np.maximum(rows.counts[rows.owner], 1)
    else:
        luck = stream(seed, "hidden", rows.owner, within).uniform()
        turned = np.lexsort((luck, rows.owner))
        part = np.empty(len(rows.y), dtype=np.int64)
        # dealt in turn within a device, beginning anywhere: three rows are not always the first
        turn = stream(seed, "turn", np.arange(len(rows))).uniform() * PARTS
        part[turned] = (within + turn.astype(np.int64)[rows.owner]) % PARTS
    every = tuple(range(PARTS))
    if ordered:
        hidden = [Hidden(every[:k], (k,)) for k in range(2, PARTS)]
    else:
        there = np.unique(part)
        hidden = [
            Hidden(tuple(p for p in every if p != k), (k,)) for k in there.tolist()
        ]
    return HiddenRows(part, hidden)


def _of_folds(folds: Sequence[Fold]) -> HiddenRows:
    """Rows that all folds treat alike are a part."""
    part, roles = row_parts(folds)
    hidden = [
        Hidden(tuple(learn.tolist()), tuple(judge.tolist())) for learn, judge in roles
    ]
    return HiddenRows(part, hidden)
