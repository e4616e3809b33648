"""Which rows of a device are kept back to judge by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from persfl.checks import real
from persfl.devices import Devices, offsets
from persfl.errors import InputError
from persfl.seeds import stream

if TYPE_CHECKING:
    from persfl.types import IntArray


def split(
    devices: Devices,
    share: float,
    *,
    seed: int,
    part: int = 0,
    classes: int = 0,
    first: int = 0,
    ordered: bool = False,
) -> tuple[Devices, Devices]:
    """Rows to learn from and rows kept back: about `share` of each device with at least four rows,
    drawn at random.

    Parts 0, 1, ... keep back different rows, as long as there are any left. With `classes`, each
    part takes its share of every class a device has; a class with a single row there comes last,
    since without it the device would not know the class.
    `first` is the position of the first of these devices in the fleet: between machines each holds
    back its own rows. Where rows are `ordered` by time, the latest are kept back.

    >>> from persfl.sources import clustered_regression
    >>> train, test = split(clustered_regression(n=3, rows=10, features=2), 0.3, seed=0)
    >>> train.counts.tolist(), test.counts.tolist()
    ([7, 7, 7], [3, 3, 3])
    """
    held = held_rows(
        devices,
        share,
        seed=seed,
        part=part,
        classes=classes,
        first=first,
        ordered=ordered,
    )
    owner = devices.owner
    return _rows(devices, ~held, owner), _rows(devices, held, owner)


def held_rows(
    devices: Devices,
    share: float,
    *,
    seed: int,
    part: int = 0,
    classes: int = 0,
    first: int = 0,
    ordered: bool = False,
) -> NDArray[np.bool_]:
    """(rows,) which rows `split` keeps back. Those of a smaller share are among those of a larger
    one, in part 0.
    """
    share = real("holdout", share, least=0.0)
    if share >= 1:
        raise InputError(f"holdout must be a share below 1. Got {share}.")
    n = len(devices)
    counts = devices.counts
    owner = devices.owner
    row = np.arange(len(owner)) - devices.start[owner]
    mark = (
        -row + 0.0
        if ordered
        else stream(seed, "held").at(owner + first, row).uniform(1)[:, 0]
    )
    rank = np.empty(len(owner), dtype=np.int64)
    # with classes: how far through the rows of its class, on its device, a row comes
    turn = np.zeros(len(owner))
    if classes and not ordered:
        group = owner * classes + devices.y.astype(np.int64)
        order = np.lexsort((mark, group))
        lowest = np.searchsorted(group[order], group[order])
        many = np.bincount(group, minlength=n * classes)[group[order]]
        turn[order] = np.where(
            many > 1, (np.arange(len(order)) - lowest + 0.5) / many, 1.0
        )
    order = np.lexsort((mark, turn, owner))
    rank[order] = row
    many = np.where(
        counts >= 4, np.clip(np.round(share * counts), 1, np.maximum(counts - 2, 1)), 0
    ) * (share > 0)
    begin = (part * many)[owner]
    held = (rank >= begin) & (rank < begin + many[owner]) & (devices.weight > 0)
    left = np.bincount(owner[~held], weights=devices.weight[~held], minlength=n)
    # a device keeps back nothing if that would leave it only rows of weight 0
    held &= left[owner] > 0
    return np.asarray(held)


def _rows(devices: Devices, which: NDArray[np.bool_], owner: IntArray) -> Devices:
    start = offsets(np.bincount(owner[which], minlength=len(devices)))
    return Devices(
        devices.X[which],
        devices.y[which],
        devices.weight[which],
        start,
        devices.ids,
        columns=devices.columns,
    )
