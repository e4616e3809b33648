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
NEVER = PARTS  # the part that is hidden from nobody


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
    part = dealt(rows.counts, np.arange(len(rows)), seed, ordered=ordered)
    return HiddenRows(part, folds_of(np.unique(part), ordered=ordered))


def _of_folds(folds: Sequence[Fold]) -> HiddenRows:
    """Rows that all folds treat alike are a part."""
    part, roles = row_parts(folds)
    hidden = [
        Hidden(tuple(learn.tolist()), tuple(judge.tolist())) for learn, judge in roles
    ]
    return HiddenRows(part, hidden)


def dealt(
    counts: IntArray, numbers: IntArray, seed: int, *, ordered: bool, least: int = 1
) -> IntArray:
    """(rows,) the part of each row, of devices that have so many rows; `numbers` are their own in
    the fleet: alone, a device deals its rows as it would among all.

    A part has at least `least` rows of a device, so those with few have fewer parts. Where there
    would be one alone, and that is of several rows, it is `NEVER` hidden: no row would be left to
    learn from.

    >>> dealt(np.array([6]), np.array([0]), 0, ordered=True, least=2).tolist()
    [0, 0, 1, 1, 3, 3]
    >>> dealt(np.array([3]), np.array([0]), 0, ordered=False, least=2).tolist()
    [5, 5, 5]
    """
    owner = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    many = np.clip(counts // least, 1, PARTS)[owner]
    if ordered:
        part = (within * many // counts[owner]) * PARTS // many
    else:
        luck = stream(seed, "folds").at(numbers[owner], within).uniform()
        order = np.lexsort((luck, owner))
        part = np.empty(len(owner), dtype=np.int64)
        # dealt in turn within a device, beginning anywhere: three rows are not always the first
        turn = stream(seed, "turn", numbers).uniform() * PARTS
        part[order] = (within % many + turn.astype(np.int64)[owner]) % PARTS
    return np.where((many == 1) & (least > 1), NEVER, part)


def folds_of(there: IntArray, *, ordered: bool) -> list[Hidden]:
    """What is hidden together, of parts that have rows.

    >>> folds_of(np.array([1, 3, 5]), ordered=False)[0]
    Hidden(learn=(0, 2, 3, 4, 5), judge=(1,))
    """
    always = (NEVER,) if NEVER in there else ()
    every = tuple(range(PARTS))
    if ordered:
        return [Hidden((*every[:k], *always), (k,)) for k in range(2, PARTS)]
    return [
        Hidden((*every[:k], *every[k + 1 :], *always), (k,))
        for k in there.tolist()
        if k != NEVER
    ]
