"""Which rows of a device are kept back to judge by."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from persfl.checks import real
from persfl.devices import Devices, offsets
from persfl.errors import InputError
from persfl.evaluation.row_order import Fold, RowOrder, held_rows
from persfl.seeds import stream


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
    """Rows to learn from and rows kept back; see `split_masks`.

    >>> from persfl.sources import clustered_regression
    >>> train, test = split(clustered_regression(n=3, rows=10, features=2), 0.3, seed=0)
    >>> train.counts.tolist(), test.counts.tolist()
    ([7, 7, 7], [3, 3, 3])
    """
    fold = split_masks(
        devices,
        share,
        seed=seed,
        part=part,
        classes=classes,
        first=first,
        order=RowOrder(ordered=ordered),
    )
    return some_rows(devices, fold.learn), some_rows(devices, fold.judge)


def split_masks(
    devices: Devices,
    share: float,
    *,
    seed: int,
    part: int = 0,
    classes: int = 0,
    first: int = 0,
    order: RowOrder | None = None,
    half: bool = False,
) -> Fold:
    """Which rows to learn from and which to keep back: about `share` of each device with at least
    four rows, drawn at random.

    Parts 0, 1, ... keep back different rows, as long as there are any left. With `classes`, each
    part takes its share of every class a device has; a class with a single row there comes last,
    since without it the device would not know the class.
    `first` is the position of the first of these devices in the fleet: between machines each holds
    back its own rows. Where `order` says that rows are in the order of time, the latest are kept
    back; where they have keys, whole keys. Unless there are keys or a clock, `half` keeps back
    about half of those rows, at least one a device.
    """
    share = real("holdout", share, least=0.0)
    if share >= 1:
        raise InputError(f"holdout must be a share below 1. Got {share}.")
    order = order or RowOrder()
    if not order.plain:
        return held_rows(devices, order, share, seed=seed, part=part)
    ordered = order.ordered
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
        dealt = np.lexsort((mark, group))
        lowest = np.searchsorted(group[dealt], group[dealt])
        many = np.bincount(group, minlength=n * classes)[group[dealt]]
        turn[dealt] = np.where(
            many > 1, (np.arange(len(dealt)) - lowest + 0.5) / many, 1.0
        )
    dealt = np.lexsort((mark, turn, owner))
    rank[dealt] = row
    many = np.where(
        counts >= 4, np.clip(np.round(share * counts), 1, np.maximum(counts - 2, 1)), 0
    ) * (share > 0)
    begin = (part * many)[owner]
    some = np.maximum(many // 2, many > 0) if half else many
    held = (rank >= begin) & (rank < begin + some[owner]) & (devices.weight > 0)
    left = np.bincount(owner[~held], weights=devices.weight[~held], minlength=n)
    # a device keeps back nothing if that would leave it only rows of weight 0
    held &= left[owner] > 0
    return Fold(~held, held)


def some_rows(devices: Devices, which: NDArray[np.bool_]) -> Devices:
    """All devices with these rows alone."""
    start = offsets(np.bincount(devices.owner[which], minlength=len(devices)))
    return Devices(
        devices.X[which],
        devices.y[which],
        devices.weight[which],
        start,
        devices.ids,
        columns=devices.columns,
    )


def taken(
    devices: Devices, which: NDArray[np.bool_], rows: NDArray[np.bool_] | bool = True
) -> Devices:
    """The devices of a mask alone, and of their rows those of a mask."""
    at = which[devices.owner] & rows
    start = offsets(np.bincount(devices.owner[at], minlength=len(devices))[which])
    ids = [devices.ids[i] for i in np.flatnonzero(which).tolist()]
    data = (devices.X[at], devices.y[at], devices.weight[at])
    return Devices(*data, start, ids, columns=devices.columns)
