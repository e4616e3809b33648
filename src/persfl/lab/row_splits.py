"""The same few rows for every method to learn from, and the same others to judge by."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from persfl.checks import whole
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.evaluation.row_order import Fold, RowOrder
from persfl.evaluation.split import split_masks, taken
from persfl.seeds import stream
from persfl.types import IntArray

MOST, LEAST = 200, 3  # rows of a device to judge by
Mask = NDArray[np.bool_]


class RowSplit(NamedTuple):
    """Rows to learn from, rows to judge by, and how many classes labels have (0: numbers)."""

    learn: Devices
    judge: Devices
    classes: int
    order: RowOrder | None = None
    """What repeats in the rows to learn from."""


def few_rows(
    devices: Devices,
    few: int,
    *,
    seed: int,
    classes: int = 0,
    order: RowOrder | None = None,
    share: float = 0.25,
) -> RowSplit:
    """`few` random rows of each device to learn from, and at most 200 of its others to judge by.

    With `few` 0, one row of every class that a device has. Devices that cannot spare three rows to
    judge by are left out. Where rows are in the `order` of time, the earliest are learned from and
    those that follow are judged by. Where they have a common clock or keys, a `share` is hidden at
    all devices at once to judge by, and `few` of the others are learned from: the latest, or
    random ones.

    >>> from persfl.sources import clustered_regression
    >>> rows = clustered_regression(n=4, rows=(6, 12), features=2, seed=1)
    >>> learn, judge, *_ = few_rows(rows, 5, seed=0)
    >>> learn.counts.tolist(), judge.counts.tolist(), learn.ids == judge.ids
    ([5, 5, 5], [6, 6, 7], True)
    """
    if not whole("few", few, least=0) and not classes:
        what = "0 means one row of every class"
        raise InputError(f"few must be at least 1 for a regression: {what}.")
    owner = devices.owner
    order = order or RowOrder()
    mark = np.arange(len(owner))
    if not order.ordered:
        mark = stream(seed, "dealt").generator().permutation(len(owner))
    each = owner if few else owner * classes + devices.y.astype(np.int64)
    if order.plain:
        learn = _place(each, mark) < max(few, 1)
        judge = ~learn
    else:
        early = -mark if order.ordered else mark
        fold = split_masks(devices, share, seed=seed, classes=classes, order=order)
        known = _place(each, np.where(fold.learn, early, len(owner))) < max(few, 1)
        learn = fold.learn & known
        judge = fold.judge
    # What does not judge gets the highest mark, so that it comes after all that may.
    judge = judge & (_place(owner, np.where(judge, mark, len(owner))) < MOST)
    to_judge = np.bincount(owner[judge], minlength=len(devices))
    to_learn = np.bincount(owner[learn], minlength=len(devices))
    enough = (to_judge >= LEAST) & (to_learn >= (few or 2))
    if enough.sum() < 2:
        raise _too_small(f"have rows enough to learn from and {LEAST} more to judge by")
    return _split(devices, Fold(learn, judge), enough, classes, order)


def held_back(
    devices: Devices,
    share: float,
    *,
    seed: int,
    classes: int = 0,
    order: RowOrder | None = None,
) -> RowSplit:
    """All but a share of every device's rows to learn from, that share to judge by.

    Devices too small for it are left out. Where rows are in the `order` of time, the latest judge;
    where they have keys, whole keys.

    >>> from persfl.sources import clustered_regression
    >>> rows = clustered_regression(n=3, rows=(2, 8), features=2, seed=4)
    >>> learn, judge, *_ = held_back(rows, 0.25, seed=0)
    >>> learn.counts.tolist(), judge.counts.tolist()
    ([4, 6, 5], [1, 2, 2])
    """
    order = order or RowOrder()
    fold = split_masks(devices, share, seed=seed, classes=classes, order=order)
    enough = np.bincount(devices.owner[fold.judge], minlength=len(devices)) > 0
    if enough.sum() < 2:
        raise _too_small(f"keep back {share:g} of at least four rows")
    return _split(devices, fold, enough, classes, order)


def next_rows(
    devices: Devices, few: int, ahead: int, cut: float, *, classes: int = 0
) -> RowSplit:
    """`few` rows in a row of each device to learn from, and the `ahead` next ones to judge by.

    `cut` from 0 to 1 is where in its history a device stands. Devices with fewer rows are left out.

    >>> from persfl.sources import clustered_regression
    >>> rows = clustered_regression(n=3, rows=(6, 12), features=2, seed=4)
    >>> rows.counts.tolist()
    [9, 12, 11]
    >>> learn, judge, *_ = next_rows(rows, 7, 3, 0.5)
    >>> learn.counts.tolist(), judge.counts.tolist()
    ([7, 7], [3, 3])
    """
    whole("ahead", ahead, least=1)
    spare = devices.counts - few - ahead
    enough = spare >= 0
    if enough.sum() < 2:
        raise _too_small(f"have {few + ahead} rows")
    first = np.floor(cut * (np.maximum(spare, 0) + 1)).astype(np.int64)
    first = np.minimum(first, np.maximum(spare, 0))
    place = np.arange(len(devices.y)) - devices.start[devices.owner]
    since = place - first[devices.owner]
    learn = (since >= 0) & (since < few)
    judge = (since >= few) & (since < few + ahead)
    order = RowOrder(ordered=True)
    return _split(devices, Fold(learn, judge), enough, classes, order)


def _split(
    devices: Devices, fold: Fold, enough: Mask, classes: int, order: RowOrder
) -> RowSplit:
    """The rows of a fold, of devices that have enough."""
    learn = taken(devices, enough, fold.learn)
    judge = taken(devices, enough, fold.judge)
    known = order.at(fold.learn & enough[devices.owner])
    return RowSplit(learn, judge, classes, known)


def _place(group: IntArray, mark: IntArray) -> IntArray:
    """(rows,) how many rows of the same group have a lower mark."""
    order = np.lexsort((mark, group))
    place = np.empty(len(group), dtype=np.int64)
    place[order] = np.arange(len(group)) - np.searchsorted(group[order], group[order])
    return place


def _too_small(what: str) -> InputError:
    need = f"comparing needs at least two devices that {what}"
    return InputError(f"{need}. Use fewer rows to learn from.")
