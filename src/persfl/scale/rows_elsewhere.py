"""What a coordinator knows of the rows that workers have."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from persfl.devices import Devices, offsets
from persfl.errors import InputError
from persfl.evaluation.rivals import pooled_of_sums
from persfl.learners.linear import Linear
from persfl.scale.shard_desk import ShardDesk
from persfl.types import Array, Learner


class ShardRows(Devices):
    """Devices whose rows are with workers: how many each has is known here, and fits are asked for.

    A method that reads rows themselves is stopped in a sentence.
    """

    def __init__(self, desk: ShardDesk) -> None:
        told = desk.counted
        self.desk = desk
        self.start = offsets(np.concatenate([each.rows for each in told]))
        self.ids = np.concatenate([each.ids for each in told]).tolist()
        self.columns = None
        self.clusters = None
        self.true_weights = None
        self.label = "y"
        # what is otherwise summed from rows
        vars(self)["total"] = np.concatenate([each.total for each in told])

    @property
    def features(self) -> int:
        return len(self.desk.use.units.scale)

    def __getitem__(self, device: Any) -> Any:
        """The rows of one device, fetched."""
        if isinstance(device, slice):
            return [self[i] for i in range(*device.indices(len(self)))]
        return self.desk.rows_of(int(device))

    def pooled_fit(self, learner: Learner) -> Array:
        """One model of all rows."""
        linear = _of_numbers(learner)
        return pooled_of_sums(linear, *self.desk.sums(linear))

    def own_fits(self, learner: Learner, anchor: Array | None) -> Array:
        """(n, size) a model of each device's own rows."""
        return self.desk.own_fits(_of_numbers(learner), anchor)

    @property
    def X(self) -> NoReturn:  # type: ignore[override]
        raise _together()

    @property
    def y(self) -> NoReturn:  # type: ignore[override]
        raise _together()

    @property
    def weight(self) -> NoReturn:  # type: ignore[override]
        raise _together()


def _of_numbers(learner: Learner) -> Linear:
    if not isinstance(learner, Linear) or learner.kind != "squared":
        raise InputError(
            f"over shards models are linear ones of squared loss. Got {learner!r}."
        )
    return learner


def _together() -> InputError:
    return InputError(
        "this method reads all rows in one place. Fit in one process, without --engine."
    )
