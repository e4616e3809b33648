"""Rows with classes that offers are judged by: hidden from the models that say their labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from persfl.devices import Devices
from persfl.methods.mixed.hidden_rows import HiddenRows
from persfl.types import Array, IntArray, Mask

# missing classes' worth of belief that rows were drawn, not chosen by class
DRAWN = 2.0


class JudgedRows(NamedTuple):
    """Hidden rows, all folds behind each other: whose they are, labels, what they count for."""

    fold: IntArray
    row: IntArray
    owner: IntArray
    label: IntArray
    weight: Array

    def first(self, many: int) -> JudgedRows:
        """So many of them."""
        return self.where(np.arange(len(self.row)) < many)

    def where(self, which: Mask) -> JudgedRows:
        """Those of a mask."""
        return JudgedRows(
            self.fold[which],
            self.row[which],
            self.owner[which],
            self.label[which],
            self.weight[which],
        )


def judged_rows(
    rows: Devices,
    hidden: HiddenRows,
    learned: Sequence[Mask],
    classes: int,
    design: float,
) -> JudgedRows:
    """What each fold hides; a row counts for `design` if its class is not among those left."""
    fold = []
    row = []
    alone = []
    label = rows.y.astype(np.int64)
    key = rows.owner * classes + label
    for k, (each, known) in enumerate(zip(hidden.folds, learned, strict=True)):
        which = np.flatnonzero(np.isin(hidden.part, each.judge) & (rows.weight > 0))
        there = np.bincount(
            key[known & (rows.weight > 0)], minlength=len(rows) * classes
        )
        fold.append(np.full(len(which), k))
        row.append(which)
        alone.append(there[key[which]] == 0)
    at = np.concatenate([np.zeros(0, dtype=np.int64), *row])
    single = np.concatenate([np.zeros(0, dtype=bool), *alone])
    weight = np.where(single, design, 1.0) * rows.weight[at]
    folds = np.concatenate([at[:0], *fold])
    return JudgedRows(folds, at, rows.owner[at], label[at], weight)


def by_design(rows: Devices, classes: int) -> float:
    """What a hidden row counts for whose class its device has no other row of.

    Where rows are drawn from a population, new rows are sometimes of a class that a device has not
    seen, and so are hidden ones. Where each device has a row or two of each class by design, hidden
    rows are often like that, and new ones never are. Which it is can be told from how many classes
    are missing at devices, against how many would be if each device drew its rows from the fleet.
    """
    there = rows.weight > 0
    key = rows.owner * classes + rows.y.astype(np.int64)
    count = np.bincount(key[there], minlength=len(rows) * classes)
    return chosen_by_class(count.reshape(len(rows), classes))


def chosen_by_class(count: Array | IntArray) -> float:
    """The same from how many rows of each class each device has, (n, classes).

    >>> chosen_by_class(np.array([[9, 0], [0, 9]])), chosen_by_class(np.eye(1) + 9)
    (1.0, 1.0)
    """
    usual = count.sum(axis=0) / max(int(count.sum()), 1)
    expected = ((1.0 - usual) ** count.sum(axis=1)[:, None])[:, usual > 0].sum()
    missing = (count == 0)[:, usual > 0].sum()
    return min(1.0, float((missing + DRAWN) / (expected + DRAWN)))
