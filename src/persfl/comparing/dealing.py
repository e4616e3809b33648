"""The same few rows for every method to learn from, and the same others to judge by."""

from __future__ import annotations

from typing import Any

import numpy as np

from persfl.checks import whole
from persfl.devices import Devices, offsets
from persfl.errors import InputError
from persfl.seeds import stream
from persfl.types import IntArray
from persfl.worth import split

MOST, LEAST = 200, 3  # rows of a device to judge by


def taken(devices: Devices, which: Any, rows: Any = True) -> Devices:
    """The devices of a mask alone, and of their rows those of a mask."""
    at = which[devices.owner] & rows
    start = offsets(np.bincount(devices.owner[at], minlength=len(devices))[which])
    ids = [devices.ids[i] for i in np.flatnonzero(which).tolist()]
    return Devices(devices.X[at], devices.y[at], devices.weight[at], start, ids, columns=devices.columns)


def few_rows(
    devices: Devices,
    few: int,
    *,
    seed: int,
    classes: int = 0,
    ordered: bool = False,
) -> tuple[Devices, Devices]:
    """`few` random rows of each device to learn from (0: one of every class it has), and at most 200 of its others to judge by.

    Devices that cannot spare three rows to judge by are left out. Where rows are `ordered` by time, the earliest are
    learned from and those that follow are judged by.

    >>> from persfl.sources import clustered_regression
    >>> learn, judge = few_rows(clustered_regression(n=4, rows=(6, 12), features=2, seed=1), 5, seed=0)
    >>> learn.counts.tolist(), judge.counts.tolist(), learn.ids == judge.ids
    ([5, 5, 5], [6, 6, 7], True)
    """
    if not whole("few", few, least=0) and not classes:
        raise InputError("few must be at least 1 for a regression: 0 means one row of every class.")
    owner, n = devices.owner, len(devices)
    mark = np.arange(len(owner)) if ordered else stream(seed, "dealt").generator().permutation(len(owner))
    each = owner if few else owner * classes + devices.y.astype(np.int64)
    learn = _place(each, mark) < max(few, 1)
    left = _place(owner, np.where(learn, len(owner), mark))
    judge = ~learn & (left < MOST)
    enough = (np.bincount(owner[judge], minlength=n) >= LEAST) & (np.bincount(owner[learn], minlength=n) >= (few or 2))
    return _both(devices, learn, judge, enough)


def held_back(
    devices: Devices,
    share: float,
    *,
    seed: int,
    classes: int = 0,
    ordered: bool = False,
) -> tuple[Devices, Devices]:
    """All but a share of every device's rows to learn from, that share to judge by; devices too small for it are left out.

    Where rows are `ordered` by time, the latest are judged by.

    >>> from persfl.sources import clustered_regression
    >>> learn, judge = held_back(clustered_regression(n=3, rows=(2, 8), features=2, seed=4), 0.25, seed=0)
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
    found = np.empty(len(group), dtype=np.int64)
    found[order] = np.arange(len(group)) - np.searchsorted(group[order], group[order])
    return found


def _both(devices: Devices, learn: Any, judge: Any, enough: Any) -> tuple[Devices, Devices]:
    if enough.sum() < 2:
        raise _too_small(f"have rows enough to learn from and {LEAST} more to judge by")
    return taken(devices, enough, learn), taken(devices, enough, judge)


def _too_small(what: str) -> InputError:
    return InputError(f"comparing needs at least two devices that {what}. Use fewer rows to learn from.")
