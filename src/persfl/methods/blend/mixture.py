"""What every kind of blend shares: groups, folds, and what comes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from persfl.devices import Devices, offsets
from persfl.seeds import stream
from persfl.trust import Trust
from persfl.types import Array, IntArray, Round

GROUPS, FOLDS, CLASS_FOLDS, BLOCKS = 8, 5, 3, 2
SORTS = ("own", "fleet", "neighbours")
_SORT = {
    "own": "own",
    "pooled": "fleet",
    "mean": "fleet",
    "alike": "neighbours",
    "neighbours": "neighbours",
}


@dataclass(frozen=True, eq=False)
class Blended:
    """`models` (devices, size) in the rows' units; `shares` (devices, offers) of what `names`
    say; `rounds` of asking.
    """

    models: Any
    names: tuple[str, ...]
    shares: Array
    rounds: tuple[Round, ...]

    @property
    def trust(self) -> Trust:
        """What is known of all pairs, and in its notes of what the models are made."""
        return self.rounds[-1].trust


def sorts(names: Any, mix: Array) -> Array:
    """(devices, 3) the shares of models that started from own rows, from the fleet and from
    neighbours.
    """
    sort = np.array([SORTS.index(_SORT[start_of(name)]) for name in names])
    return np.stack([mix[:, sort == k].sum(axis=1) for k in range(len(SORTS))], axis=1)


def start_of(name: Any) -> str:
    """What an offer of this name started from.

    >>> start_of("centred pooled-seen 10")
    'pooled'
    """
    return str(name).split()[1].removesuffix("-seen")


def dealt(n: int, seed: int) -> IntArray:
    """Which group each device is in; all groups are equally large, or nearly."""
    order = np.argsort(
        stream(seed, "groups").at(np.arange(n)).uniform(1)[:, 0], kind="stable"
    )
    found = np.empty(n, dtype=np.int64)
    found[order] = np.arange(n) % min(GROUPS, n)
    return found


def of_devices(rows: Devices, which: IntArray) -> Devices:
    """These devices alone, in this order.

    >>> from persfl.devices import Devices
    >>> rows = Devices.of([(np.eye(2), [0.0, 1.0]), (np.eye(2)[:1], [2.0])], quiet=True)
    >>> of_devices(rows, np.array([1, 0])).y.tolist()
    [2.0, 0.0, 1.0]
    """
    counts = rows.counts[which]
    # Where each device's rows begin, less where they will: added to 0, 1, 2, ... it leads to the
    # rows.
    shift = rows.start[:-1][which] - offsets(counts)[:-1]
    at = np.arange(counts.sum()) + np.repeat(shift, counts)
    return Devices(
        rows.X[at], rows.y[at], rows.weight[at], offsets(counts), range(len(which))
    )
