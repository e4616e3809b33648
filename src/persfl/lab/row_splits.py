"""The same few rows for every method to learn from, and the same others to judge by."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from persfl.checks import whole
from persfl.devices import Devices, offsets
from persfl.errors import InputError
from persfl.evaluation.split import split
from persfl.seeds import stream
from persfl.types import IntArray

MOST, LEAST = 200, 3  # rows of a device to judge by
Mask = NDArray[np.bool_]


class RowSplit(NamedTuple):
    """Rows to learn from, rows to judge by, and how many classes labels have (0: numbers)."""

    learn: Devices
    judge: Devices
    classes: int


def taken(devices: Devices, which: Mask, rows: Mask | bool = True) -> Devices:
    """The devices of a mask alone, and of their rows those of a mask."""
    at = which[devices.owner] & rows
    start = offsets(np.bincount(devices.owner[at], minlength=len(devices))[which])
    ids = [devices.ids[i] for i in np.flatnonzero(which).tolist()]
    data = (devices.X[at], devices.y[at], devices.weight[at])
    return Devices(*data, start, ids, columns=devices.columns)


def few_rows(
    devices: Devices,
    few: int,
    *,
    seed: int,
    classes: int = 0,
    ordered: bool = False,
) -> tuple[Devices, Devices]:
    """`few` random rows of each device to learn from, and at most 200 of its others to judge by.

    With `few` 0, one row of every class that a device has. Devices that cannot spare three rows to
    judge by are left out. Where rows are `ordered` by time, the earliest are learned from and those
    that follow are judged by.

    >>> from persfl.sources import clustered_regression
    >>> rows = clustered_regression(n=4, rows=(6, 12), features=2, seed=1)
    >>> learn, judge = few_rows(rows, 5, seed=0)
    >>> learn.counts.tolist(), judge.counts.tolist(), learn.ids == judge.ids
    ([5, 5, 5], [6, 6, 7], True)
    """
    if not whole("few", few, least=0) and not classes:
        what = "0 means one row of every class"
        raise InputError(f"few must be at least 1 for a regression: {what}.")
    owner = devices.owner
    mark = np.arange(len(owner))
    if not ordered:
        mark = stream(seed, "dealt").generator().permutation(len(owner))
    each = owner if few else owner * classes + devices.y.astype(np.int64)
    learn = _place(each, mark) < max(few, 1)
    # What is learned from gets the highest mark, so that it comes after all that may judge.
    judge = ~learn & (_place(owner, np.where(learn, len(owner), mark)) < MOST)
    to_judge = np.bincount(owner[judge], minlength=len(devices))
    to_learn = np.bincount(owner[learn], minlength=len(devices))
    enough = (to_judge >= LEAST) & (to_learn >= (few or 2))
    if enough.sum() < 2:
        raise _too_small(f"have rows enough to learn from and {LEAST} more to judge by")
    return taken(devices, enough, learn), taken(devices, enough, judge)


def held_back(
    devices: Devices,
    share: float,
    *,
    seed: int,
    classes: int = 0,
    ordered: bool = False,
) -> tuple[Devices, Devices]:
    """All but a share of every device's rows to learn from, that share to judge by.

    Devices too small for it are left out. Where rows are `ordered` by time, the latest judge.

    >>> from persfl.sources import clustered_regression
    >>> rows = clustered_regression(n=3, rows=(2, 8), features=2, seed=4)
    >>> learn, judge = held_back(rows, 0.25, seed=0)
    >>> learn.counts.tolist(), judge.counts.tolist()
    ([4, 6, 5], [1, 2, 2])
    """
    learn, judge = split(devices, share, seed=seed, classes=classes, ordered=ordered)
    enough = judge.counts > 0
    if enough.sum() < 2:
        raise _too_small(f"keep back {share:g} of at least four rows")
    return taken(learn, enough), taken(judge, enough)


def _place(group: IntArray, mark: IntArray) -> IntArray:
    """(rows,) how many rows of the same group have a lower mark."""
    order = np.lexsort((mark, group))
    place = np.empty(len(group), dtype=np.int64)
    place[order] = np.arange(len(group)) - np.searchsorted(group[order], group[order])
    return place


def _too_small(what: str) -> InputError:
    need = f"comparing needs at least two devices that {what}"
    return InputError(f"{need}. Use fewer rows to learn from.")
