"""What comes out of a blend, and in which groups devices are dealt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from persfl.devices import Devices, offsets
from persfl.seeds import stream
from persfl.trust import Trust
from persfl.types import Array, IntArray, Model, Round

SORTS = ("own", "fleet", "neighbours")
_SORT = {
    "own": "own",
    "pooled": "fleet",
    "mean": "fleet",
    "alike": "neighbours",
    "neighbours": "neighbours",
}


@dataclass(frozen=True, eq=False)
class BlendResult:
    """`models` (devices, size) in the rows' units, or for each device a list of (share, model),
    or None for no target; `shares` (devices, offers) of what `names`
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


def sorts(names: Iterable[str], mix: Array) -> Array:
    """(devices, 3) the shares of models that started from own rows, from the fleet and from
    neighbours.
    """
    sort = np.array([SORTS.index(_SORT[offer_start(name)]) for name in names])
    return np.stack([mix[:, sort == k].sum(axis=1) for k in range(len(SORTS))], axis=1)


def offer_start(name: str) -> str:
    """What an offer of this name started from.

    >>> offer_start("centred pooled-seen 10")
    'pooled'
    """
    return str(name).split()[1].removesuffix("-seen")


def placed(n: int, parts: Sequence[tuple[IntArray, Sequence[Model]]]) -> list[Model]:
    """(n,) models, each at its device's place; None for the others.

    >>> placed(3, [(np.array([2, 0]), ["c", "a"])])
    ['a', None, 'c']
    """
    found: list[Model] = [None] * n
    for which, models in parts:
        for i, model in zip(which.tolist(), models, strict=True):
            found[i] = model
    return found


def groups_of(n: int, seed: int, most: int) -> IntArray:
    """Which group each device is in; all groups are equally large, or nearly."""
    order = np.argsort(
        stream(seed, "groups").at(np.arange(n)).uniform(1)[:, 0], kind="stable"
    )
    found = np.empty(n, dtype=np.int64)
    found[order] = np.arange(n) % min(most, n)
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
