"""What repeats in the rows: keys that rows share, and their order in time.

Rows of one date hang together, at one device and across devices; later rows are not known when
earlier ones are learned from. Whoever hides rows to judge by them asks here which may be learned
from, so that nothing leaks: a key is hidden at all devices at once, and of time it is the future.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from persfl.seeds import stream

if TYPE_CHECKING:
    from persfl.devices import Devices
    from persfl.types import Array, IntArray

Mask = NDArray[np.bool_]


class Fold(NamedTuple):
    """(rows,) what is learned from and what is judged by; the others are left out."""

    learn: Mask
    judge: Mask


@dataclass(frozen=True, eq=False)
class RowOrder:
    """What is known of the rows beside what they hold; arrays have one entry per row.

    >>> RowOrder(time=np.array([3.0, 1.0, 2.0])).at(np.array([True, False, True])).time
    array([3., 2.])
    """

    ordered: bool = False
    """Whether a device's rows come in the order of time."""
    blocks: IntArray | None = None
    """Rows with equal numbers are hidden together, at all devices at once."""
    time: Array | None = None
    """When each row was, on a clock that all devices share; rows of a device are in its order."""
    gap: float = 0.0
    """How much before a cut is left out, on that clock; without one, in rows."""
    horizon: float = np.inf
    """How far after a cut is judged, likewise."""
    clock: str = "rows"
    """What these are measured in: "rows", or of `time` "numbers" or "dates" (seconds)."""
    found: bool = False
    """Whether nobody said so, but rows show it (`row_course`)."""

    @property
    def random(self) -> bool:
        """Whether nothing was said, so that rows may be hidden at random."""
        return not self.ordered and self.blocks is None

    @property
    def common(self) -> bool:
        """Whether what is hidden is hidden at all devices at once."""
        return self.blocks is not None or self.time is not None

    @property
    def plain(self) -> bool:
        """Whether all there is to know is `ordered`."""
        return not self.common and self.gap == 0 and np.isinf(self.horizon)

    @property
    def keys(self) -> IntArray | None:
        """(rows,) a number that is equal where rows are of one date, at whatever device."""
        if self.blocks is not None or self.time is None:
            return self.blocks
        return np.unique(self.time, return_inverse=True)[1]

    def moments(self, rows: Devices, judge: Mask) -> IntArray | None:
        """(judged rows,) what they share with rows of other devices: the key or the moment, or how
        far from its first one a device's row comes; None where rows may be hidden at random.
        """
        keys = self.keys
        if keys is not None:
            return keys[judge]
        if not self.ordered:
            return None
        owner = rows.owner[judge]
        first = np.searchsorted(owner, owner)
        return np.asarray(np.arange(len(owner)) - first)

    def at(self, which: Mask | IntArray) -> RowOrder:
        """Of these rows alone."""
        blocks = None if self.blocks is None else self.blocks[which]
        time = None if self.time is None else self.time[which]
        return replace(self, blocks=blocks, time=time)

    def future(self, rows: Devices, share: float, first: IntArray) -> Fold:
        """The latest `share` of all rows judge what is learned from those before the cut; without
        a common clock each device's rows from its `first` (devices,) on.
        """
        if self.time is not None and (self.time != self.time[:1]).any():
            ahead: Array = self.time - _cut(self.time, share)
        else:
            ahead = (_places(rows) - first[rows.owner]).astype(np.float64)
        return self.apart(ahead < -self.gap, (ahead >= 0) & (ahead < self.horizon))

    def apart(self, learn: Mask, judge: Mask) -> Fold:
        """Without rows to learn from that have a key of rows to judge by."""
        if self.blocks is not None:
            learn = learn & ~np.isin(self.blocks, self.blocks[judge])
        return Fold(learn, judge)


def _places(rows: Devices) -> IntArray:
    """(rows,) where each stands among its device's, from 0."""
    return np.asarray(np.arange(len(rows.owner)) - rows.start[rows.owner])


def _cut(time: Array, share: float) -> float:
    """The moment from which on there is nearest to this share of the rows, never all.

    >>> _cut(np.array([1.0, 1.0, 2.0, 3.0, 3.0]), 0.4)
    3.0
    """
    moments, counts = np.unique(time, return_counts=True)
    later = np.cumsum(counts[::-1])[::-1] / len(time)
    return float(moments[1 + np.argmin(np.abs(later[1:] - share))])


def held_rows(
    rows: Devices, order: RowOrder, share: float, *, seed: int, part: int = 0
) -> Fold:
    """What a trial learns from and holds back, where rows are not to be drawn one by one.

    The latest rows; or of all keys about `share`, other keys in every part as long as there are
    any. Devices without rows to learn from are not judged: there is nothing of their own to know.

    >>> from persfl.devices import Devices
    >>> rows = Devices.of([(np.zeros((4, 1)), np.zeros(4))] * 2, quiet=True)
    >>> order = RowOrder(ordered=True, time=np.array([1.0, 2, 3, 4, 4, 5, 6, 7]))
    >>> fold = held_rows(rows, order, 0.25, seed=0)
    >>> fold.judge.tolist()
    [False, False, False, False, False, False, True, True]
    """
    if order.ordered:
        fold = _latest(rows, order, share)
        late = part > 0  # there is one future
    else:
        keys, at = np.unique(_keys(order), return_inverse=True)
        many = int(np.clip(round(share * len(keys)), 1, max(len(keys) - 1, 1)))
        place = _dealt(keys, seed)
        hidden = ((place >= part * many) & (place < (part + 1) * many))[at]
        fold = Fold(~hidden, hidden)
        late = len(keys) < 2
    if share <= 0 or late:
        everything = np.ones(len(rows.y), dtype=bool)
        return Fold(everything, ~everything)
    return _known(rows, fold)


def _latest(rows: Devices, order: RowOrder, share: float) -> Fold:
    """The latest rows judge: of all, or of each device that has at least four."""
    counts = rows.counts
    most = np.clip(np.round(share * counts), 1, np.maximum(counts - 2, 1))
    last = np.where(counts >= 4, most, 0).astype(np.int64)
    fold = order.future(rows, share, counts - last)
    if order.time is not None:
        return fold
    # who judges nothing needs no gap before it
    return order.apart(fold.learn | (last == 0)[rows.owner], fold.judge)


def hidden_folds(
    rows: Devices, order: RowOrder, parts: int, *, seed: int
) -> list[Fold]:
    """What is hidden in turn so that offers can be judged: each of `parts` parts of the keys, or
    what comes next after two, three, ... of so many parts of the time.

    Nothing where there is nothing to tell apart: one key, or one moment.

    >>> from persfl.devices import Devices
    >>> rows = Devices.of([(np.zeros((5, 1)), np.zeros(5))], quiet=True)
    >>> folds = hidden_folds(rows, RowOrder(ordered=True), 5, seed=0)
    >>> [fold.learn.sum().item() for fold in folds]
    [2, 3, 4]
    """
    if order.ordered:
        shares = [1.0 - k / parts for k in range(min(2, parts - 1), parts)]
        begins = [np.ceil((1.0 - share) * rows.counts - 1e-9) for share in shares]
        found = [
            order.future(rows, share, first.astype(np.int64))
            for share, first in zip(shares, begins, strict=True)
        ]
        if np.isinf(order.horizon):  # what comes next, up to the next cut
            later = [*(fold.judge for fold in found[1:]), np.zeros(len(rows.y), bool)]
            found = [
                Fold(fold.learn, fold.judge & ~after)
                for fold, after in zip(found, later, strict=True)
            ]
    else:
        keys, at = np.unique(_keys(order), return_inverse=True)
        part = (_dealt(keys, seed) % parts)[at]
        hidden = [part == k for k in np.unique(part).tolist()]
        found = [Fold(~each, each) for each in hidden]
    known = [_known(rows, fold) for fold in found]
    return [fold for fold in known if fold.judge.any() and _several(rows, fold)]


def _several(rows: Devices, fold: Fold) -> bool:
    """Whether more than one device has something to learn from, or there is one only."""
    weight = rows.weight * fold.learn
    there = np.bincount(rows.owner, weights=weight, minlength=len(rows)) > 0
    return bool(there.sum() >= min(2, len(rows)))


def _keys(order: RowOrder) -> IntArray:
    assert order.blocks is not None
    return order.blocks


def _dealt(keys: IntArray, seed: int) -> IntArray:
    """The place of each key among all, drawn by the seed."""
    luck = stream(seed, "hidden keys").at(keys).uniform(1)[:, 0]
    return np.asarray(np.argsort(np.argsort(luck)))


def _known(rows: Devices, fold: Fold) -> Fold:
    """Judged only where rows count, and where their device has others to learn from."""
    weight = rows.weight * fold.learn
    left = np.bincount(rows.owner, weights=weight, minlength=len(rows))
    judge = fold.judge & (rows.weight > 0) & (left > 0)[rows.owner]
    return Fold(fold.learn, judge)


def row_parts(
    folds: Sequence[Fold],
) -> tuple[IntArray, list[tuple[IntArray, IntArray]]]:
    """Rows that all folds treat alike, as parts: (rows,) which part, and per fold the parts that
    are learned from and those that are judged.

    >>> masks = np.array([True, True, False]), np.array([False, False, True])
    >>> part, ((learn, judge),) = row_parts([Fold(*masks)])
    >>> part.tolist(), learn.tolist(), judge.tolist()
    ([1, 1, 0], [1], [0])
    """
    role = np.stack([fold.learn * 2 + fold.judge for fold in folds], axis=1)
    kinds, part = np.unique(role, axis=0, return_inverse=True)
    roles = [
        (np.flatnonzero(kinds[:, k] == 2), np.flatnonzero(kinds[:, k] == 1))
        for k in range(len(folds))
    ]
    return part.ravel(), roles
