"""What a run asks the workers of its shards, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from persfl.devices import Devices
from persfl.scale.column_moments import ColumnMoments
from persfl.scale.fleet_model import Ids
from persfl.types import IntArray, Mask
from persfl.units import Units


@dataclass(frozen=True)
class ShardLook:
    """Look at all rows of a shard, and send those of the devices at these positions."""

    shard: int
    wanted: IntArray


class Looked(NamedTuple):
    """What columns are like in a shard, and the devices that were asked for: their ids, their rows,
    and which of these a trial learns from.
    """

    moments: ColumnMoments
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


Question = ShardLook | Sum | Make
