"""How much memory a fit over shards takes, said before it begins."""

from __future__ import annotations

from typing import NamedTuple

from persfl.checks import many
from persfl.learners.linear import Linear
from persfl.methods import Blend, Kin, Method, Mixed
from persfl.methods.mixed.panel_draw import CENTRES
from persfl.methods.mixed.panel_knowledge import BLOCK
from persfl.rules.kin_adopter import KinAdopter
from persfl.scale.shard_engine import ROOM
from persfl.scale.shard_index import ShardIndex
from persfl.training.state import KIN_ROUNDS, STEP_ROUNDS, peers_asked, rounds_for

PROGRAM = 0.35e9  # bytes: Python and the packages it reads
COPIES = 8  # of the rows of a row group: as read, as numbers, in units, in parts
TABLES = 12  # of a number for each device of a block and each centre
PANEL_COPIES = 14  # of the panel's rows and sums at the coordinator
HELD = 2  # copies of all rows of a worker, while it reads them
MODEL_COPIES = 12  # of all models, in a round and as they are kept
PAIR = 110.0  # bytes of what is known of a device and a peer that it met, as it is added up
STEP_COPIES = 5  # of each step that is remembered: two, and new ones as they come
NOTES = 200.0  # bytes of what kin remembers beside them


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


def memory_needed(
    index: ShardIndex, features: int, panel: int, rounds: MetPeers | None, workers: int
) -> MemoryNeeded:
    """By the largest row group, the number of features, and the size of the panel; of methods that
    ask round by round by all rows, too, and by the peers that devices meet.
    """
    row = 8.0 * (features + 2)
    largest = max(shard.largest for shard in index.shards)
    some = min(panel, index.devices)
    rows = some * index.rows / index.devices
    sums = some * 8.0 * (features + 2) ** 2
    worker = PROGRAM + COPIES * largest * row
    here = PROGRAM + PANEL_COPIES * (rows * row + sums)
    if rounds is None:
        centres = min(CENTRES, panel, index.devices)
        worker += TABLES * 8.0 * BLOCK * centres
        return MemoryNeeded(worker, here + 6 * 8.0 * some * centres)
    mine = max(sum(s.rows for s in index.shards[w::workers]) for w in range(workers))
    worker += HELD * mine * row + ROOM / workers
    own = MODEL_COPIES * row + rounds.each(features)
    return MemoryNeeded(worker, here + ROOM + index.devices * own)


class MetPeers(NamedTuple):
    """How many peers a device meets, and whether their steps are remembered."""

    peers: int
    steps: bool

    def each(self, features: int) -> float:
        """Bytes of a device."""
        step = 8.0 * (features + 1)
        return self.peers * (PAIR + (STEP_COPIES * step + NOTES if self.steps else 0))

    @staticmethod
    def of(method: Method, n: int) -> MetPeers | None:
        """Those of a method over `n` devices; None where it does not ask round by round."""
        if isinstance(method, Blend | Mixed):
            return None
        told = method.get_params()
        steps = isinstance(method, Kin)
        if "peers" not in told:
            return MetPeers(0, steps)
        most = KIN_ROUNDS if steps else STEP_ROUNDS
        rounds = rounds_for(told["rounds"], Linear(), most)
        asked = peers_asked(told["peers"], n) * rounds
        met = KinAdopter().met(n) if steps else n - 1
        return MetPeers(min(met, asked), steps)
