"""Folds of a device's own rows: models fitted without a fold can be judged on it honestly.

Rows are dealt out at random, classes so that each fold leaves as many of them as possible on the
other side. Where rows come in the order of time and later ones are to be predicted, folds are
blocks of time instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from persfl.devices import Devices
from persfl.evaluation.row_order import Mask
from persfl.learners.responses import respond_each
from persfl.methods.blend.blend_settings import USUAL, BlendSettings
from persfl.methods.blend.evidence import missed
from persfl.seeds import stream
from persfl.types import Array, IntArray, Learner


@dataclass(frozen=True)
class Folding:
    """How own rows are dealt into folds."""

    classes: int = 0
    ordered: bool = False
    seed: int = 0
    settings: BlendSettings = USUAL

    @property
    def count(self) -> int:
        """How many folds."""
        return self.settings.count(self.classes, self.ordered)

    def of(self, rows: Devices, numbers: IntArray) -> IntArray:
        """(rows,) which fold each row is in; `numbers` are the devices' own in the fleet."""
        return fold_numbers(
            rows,
            self.count,
            classes=self.classes,
            ordered=self.ordered,
            seed=self.seed,
            numbers=numbers,
        )


@dataclass(frozen=True)
class HiddenFolding(Folding):
    """One fold, hidden at all devices at once; what it does not judge is in no fold.

    `start` is where each device's rows begin, `judge` (rows,) what is hidden; None is nothing.
    """

    start: IntArray = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    judge: Mask | None = None

    @property
    def count(self) -> int:
        """One, or none."""
        return 0 if self.judge is None else 1

    def of(self, rows: Devices, numbers: IntArray) -> IntArray:
        """(rows,) 0 in the fold, -1 outside."""
        if self.judge is None:
            return np.full(len(rows.y), -1)
        begins = self.start[numbers]
        ends = self.start[numbers + 1]
        parts = zip(begins.tolist(), ends.tolist(), strict=True)
        hidden = np.concatenate([self.judge[lo:hi] for lo, hi in parts])
        return np.where(hidden, 0, -1)


class TargetRows:
    """Targets' own rows: whole, and once without each fold, so that folds can be judged."""

    def __init__(self, rows: Devices, folding: Folding, numbers: IntArray) -> None:
        self.rows = rows
        self.folding = folding
        self.fold = folding.of(rows, numbers)
        self.copies = copies(rows, self.fold, np.arange(len(rows)), folding.count)

    @cached_property
    def usable(self) -> Array:
        """(rows,) the weight with which each row counts as evidence."""
        return judged_weight(self.rows, self.fold, self.folding.count)

    @cached_property
    def judges(self) -> IntArray:
        """(rows,) the copy that has not seen a row, and so may judge it."""
        return np.asarray(self.rows.owner * (self.folding.count + 1) + 1 + self.fold)

    def whole(self, offers: Sequence[Array]) -> list[Array]:
        """(targets, size) of models (copies, size): those of all rows."""
        return [models[:: self.folding.count + 1].copy() for models in offers]

    def total(self, each: Array) -> Array:
        """(targets,) sums over each one's rows."""
        owner = self.rows.owner
        return np.bincount(owner, weights=each, minlength=len(self.rows)).astype(float)

    def losses(self, learner: Learner, models: Array) -> Array:
        """(targets,) the mean loss of models (copies, size) over rows that they have not seen."""
        rows = self.rows
        classes = self.folding.classes
        with np.errstate(all="ignore"):
            said = respond_each(learner, models, rows.X, self.judges, classes)
            each = self.usable * missed(said, rows.y, classes)
        return self.total(each) / np.maximum(self.total(self.usable), 1e-12)


def fold_numbers(
    rows: Devices,
    count: int,
    *,
    classes: int = 0,
    ordered: bool = False,
    seed: int = 0,
    numbers: IntArray | None = None,
) -> IntArray:
    """(rows,) which fold each row is in, from 0; a device with fewer rows than `count` has as many
    folds as rows.

    `numbers` are these devices' own in the fleet: alone, a device deals its rows as it would among
    all.

    >>> devices = Devices.of(
    ...     [(np.zeros((5, 1)), np.zeros(5)), (np.zeros((2, 1)), np.zeros(2))],
    ...     quiet=True,
    ... )
    >>> fold_numbers(devices, 3, ordered=True).tolist()
    [0, 0, 1, 1, 2, 0, 1]
    """
    owner = rows.owner
    place = np.arange(len(owner)) - rows.start[owner]
    many = np.minimum(count, rows.counts)[owner]
    if ordered:
        return np.asarray(place * many // rows.counts[owner])
    mark = (
        stream(seed, "folds")
        .at(owner if numbers is None else numbers[owner], place)
        .uniform(1)[:, 0]
    )
    order = np.lexsort((mark, rows.y, owner) if classes else (mark, owner))
    dealt = np.empty(len(owner), dtype=np.int64)
    dealt[order] = place
    return np.asarray(dealt % many)


def copies(rows: Devices, fold: IntArray, which: IntArray, count: int) -> Devices:
    """These devices once with all their rows and then once without each fold (weight 0 there),
    device by device.

    A device that would have no weight left keeps all its rows; what it says about a fold is then no
    evidence (see `judged`).

    >>> devices = Devices.of([(np.zeros((2, 1)), np.zeros(2))], quiet=True)
    >>> copies(devices, np.array([0, 1]), np.array([0]), 2).weight.tolist()
    [1.0, 1.0, 0.0, 1.0, 1.0, 0.0]
    """
    index = np.concatenate(
        [np.arange(rows.start[i], rows.start[i + 1]) for i in which.tolist()]
    )
    counts = rows.counts[which]
    takes = [
        np.tile(part, count + 1) for part in np.split(index, np.cumsum(counts)[:-1])
    ]
    at = np.concatenate(takes)
    without = np.concatenate(
        [np.repeat(np.arange(-1, count), n) for n in counts.tolist()]
    )
    hidden = (fold[at] == without) & (without >= 0)
    weight = np.where(hidden, 0.0, rows.weight[at])
    start = np.concatenate([[0], np.cumsum(np.repeat(counts, count + 1))]).astype(
        np.int64
    )
    left = np.add.reduceat(weight, start[:-1])
    whole = np.repeat(left <= 0, np.diff(start))
    weight = np.where(whole, rows.weight[at], weight)
    return Devices(rows.X[at], rows.y[at], weight, start, range(len(start) - 1))


def judged_weight(rows: Devices, fold: IntArray, count: int) -> Array:
    """(rows,) the weight with which each row's fold counts as evidence: 0 where the device has
    no other rows, and where a row is in no fold (-1).
    """
    there = fold >= 0
    key = np.where(there, rows.owner * count + fold, 0)
    weight = rows.weight * there
    inside = np.bincount(key, weights=weight, minlength=len(rows) * count)[key]
    return np.asarray(np.where(rows.total[rows.owner] - inside > 1e-12, weight, 0.0))
