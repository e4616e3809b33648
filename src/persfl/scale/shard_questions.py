"""What a run asks the workers of its shards, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from persfl.devices import Devices
from persfl.learners.linear import Linear
from persfl.proposers.gradient import GradientStep
from persfl.scale.column_moments import ColumnMoments
from persfl.scale.fleet_model import Ids
from persfl.types import Array, IntArray, Mask
from persfl.units import Units


@dataclass(frozen=True)
class ShardLook:
    """Look at all rows of a shard, and send those of the devices at these positions."""

    shard: int
    wanted: IntArray


class Looked(NamedTuple):
    """What columns are like in a shard, in all rows and in those that a trial learns from; and the
    devices that were asked for: their ids, their rows, and which of these a trial learns from.
    """

    moments: ColumnMoments
    learned: ColumnMoments
    ids: Ids
    rows: Devices
    learn: Mask


@dataclass(frozen=True)
class Make:
    """Make the models of a shard's devices and write them."""

    shard: int


@dataclass(frozen=True)
class Sum:
    """The sums of a shard's devices in these units, with a level; of a trial without what it holds
    back.
    """

    shard: int
    units: Units
    trial: bool


class Made(NamedTuple):
    """How many devices of a shard have models now."""

    devices: int


@dataclass(frozen=True)
class RowUse:
    """Which rows models learn from, all or those of a trial, and in which units."""

    units: Units
    trial: bool


@dataclass(frozen=True)
class Count:
    """Who is in a shard, and how many rows each has."""

    shard: int
    use: RowUse


class Counted(NamedTuple):
    """(devices,) ids, rows, and sums of their weights."""

    ids: Ids
    rows: IntArray
    total: Array


@dataclass(frozen=True)
class Fetch:
    """The rows of one device, by its place in the shard."""

    shard: int
    use: RowUse
    place: int


@dataclass(frozen=True)
class Step:
    """Where steps on the rows of devices `who`, by their places in the shard, take models (P, size)
    of whoever asks; `keys` (P,) are the streams at which randomness is drawn.
    """

    shard: int
    use: RowUse
    learner: Linear
    proposer: GradientStep
    models: Array
    who: IntArray
    keys: NDArray[np.uint64]


@dataclass(frozen=True)
class Score:
    """The losses of models (P, K, size) on the rows of devices `who` (P,); with one P, of the same
    models everywhere.
    """

    shard: int
    use: RowUse
    learner: Linear
    models: Array
    who: IntArray


@dataclass(frozen=True)
class FitOwn:
    """The model of each device's own rows, shrunk toward `anchor`, or toward no slopes."""

    shard: int
    use: RowUse
    learner: Linear
    anchor: Array | None


@dataclass(frozen=True)
class Pool:
    """The sums that one model of all rows follows from."""

    shard: int
    use: RowUse
    learner: Linear


class PooledSums(NamedTuple):
    """X'X (size, size) and X'y (size,) of the rows of a shard, by their weights."""

    gram: Array
    pull: Array


RowQuestion = Count | Fetch | Step | Score | FitOwn | Pool
Question = ShardLook | Sum | Make | RowQuestion
