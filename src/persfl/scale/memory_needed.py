"""How much memory a fit over shards takes, said before it begins."""

from __future__ import annotations

from typing import NamedTuple

from persfl.checks import many
from persfl.methods.mixed.panel_draw import CENTRES
from persfl.methods.mixed.panel_knowledge import BLOCK
from persfl.scale.shard_index import ShardIndex

PROGRAM = 0.35e9  # bytes: Python and the packages it reads
COPIES = 8  # of the rows of a row group: as read, as numbers, in units, in parts
TABLES = 12  # of a number for each device of a block and each centre
PANEL_COPIES = 14  # of the panel's rows and sums at the coordinator


class MemoryNeeded(NamedTuple):
    """Bytes of a worker and of the coordinator."""

    worker: float
    coordinator: float

    def sentence(self, workers: int) -> str:
        """For people.

        >>> MemoryNeeded(4.4e8, 9e8).sentence(2)
        '2 workers take up to 0.4 GiB each, the coordinator 0.8 GiB.'
        """
        each = f"{self.worker / 2**30:.1f} GiB" + (" each" if workers > 1 else "")
        here = f"{self.coordinator / 2**30:.1f} GiB"
        verb = "take" if workers > 1 else "takes"
        return f"{many(workers, 'worker')} {verb} up to {each}, the coordinator {here}."


def memory_needed(index: ShardIndex, features: int, panel: int) -> MemoryNeeded:
    """By the largest row group, the number of features, and the size of the panel."""
    row = 8.0 * (features + 2)
    largest = max(shard.largest for shard in index.shards)
    centres = min(CENTRES, panel, index.devices)
    worker = PROGRAM + COPIES * largest * row + TABLES * 8.0 * BLOCK * centres
    some = min(panel, index.devices)
    rows = some * index.rows / index.devices
    sums = some * 8.0 * (features + 2) ** 2
    matrix = 8.0 * some * centres
    here = PROGRAM + PANEL_COPIES * (rows * row + sums) + 6 * matrix
    return MemoryNeeded(worker, here)
