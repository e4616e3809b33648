"""Who asks the workers about devices by their positions in the fleet: one question a shard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from persfl.learners.linear import Linear
from persfl.proposers.gradient import GradientStep
from persfl.scale.crew import Crew
from persfl.scale.shard_index import ShardIndex
from persfl.scale.shard_questions import (
    Count,
    Counted,
    Fetch,
    FitOwn,
    Pool,
    PooledSums,
    RowQuestion,
    RowUse,
    Score,
    Step,
)
from persfl.seeds import Stream
from persfl.types import Array, Data, IntArray


@dataclass(frozen=True, eq=False)
class ShardDesk:
    """Asks about the rows of one use: all, or those that a trial learns from."""

    crew: Crew
    index: ShardIndex
    use: RowUse

    @property
    def shards(self) -> range:
        """All of them."""
        return range(len(self.index.shards))

    @cached_property
    def counted(self) -> Sequence[Counted]:
        """Who is in each shard."""
        return self._of_all(lambda shard: Count(shard, self.use))

    def stepped(
        self,
        learner: Linear,
        proposer: GradientStep,
        models: Array,
        who: IntArray,
        place: Stream,
    ) -> Array:
        """(P, size) where steps on the rows of devices `who` take models (P, size)."""
        keys = np.broadcast_to(place.keys, who.shape)
        out = np.empty(models.shape)

        def question(shard: int, at: IntArray, places: IntArray) -> RowQuestion:
            mine = models[at]
            return Step(shard, self.use, learner, proposer, mine, places, keys[at])

        return self._gathered(who, question, out)

    def losses(self, learner: Linear, models: Array, who: IntArray) -> Array:
        """(P, K) of models (P, K, size), or (1, K, size) of the same for all, on their rows."""
        out = np.empty((len(who), models.shape[1]))
        alike = len(models) == 1

        def question(shard: int, at: IntArray, places: IntArray) -> RowQuestion:
            mine = models if alike else models[at]
            return Score(shard, self.use, learner, mine, places)

        return self._gathered(who, question, out)

    def rows_of(self, device: int) -> Data:
        """Those of one device."""
        (shard, (_, places)), *_ = self._spread(np.array([device]))
        question = Fetch(shard, self.use, int(places[0]))
        found: Data = dict(self.crew.ask({shard: question}))[shard]
        return found

    def own_fits(self, learner: Linear, anchor: Array | None) -> Array:
        """(n, size) a model of each device's own rows."""
        asked = self._of_all(lambda shard: FitOwn(shard, self.use, learner, anchor))
        return np.concatenate(asked)

    def sums(self, learner: Linear) -> PooledSums:
        """Those of all rows, added in the order of shards."""
        told = self._of_all(lambda shard: Pool(shard, self.use, learner))
        return PooledSums(*(sum(each[1:], each[0]) for each in zip(*told, strict=True)))

    def _of_all(self, question: Callable[[int], RowQuestion]) -> Sequence[Any]:
        """What all shards answer, in their order."""
        told = dict(self.crew.ask({shard: question(shard) for shard in self.shards}))
        return [told[shard] for shard in self.shards]

    def _gathered(
        self,
        who: IntArray,
        question: Callable[[int, IntArray, IntArray], RowQuestion],
        out: Array,
    ) -> Array:
        """What shards answer about these devices, each answer at its place."""
        spread = dict(self._spread(who))
        asked = {
            shard: question(shard, at, places) for shard, (at, places) in spread.items()
        }
        for shard, answer in self.crew.ask(asked):
            out[spread[shard][0]] = answer
        return out

    def _spread(self, who: IntArray) -> Iterator[tuple[int, tuple[IntArray, IntArray]]]:
        """Each shard that has some of them: where these stand in `who`, and in the shard."""
        first = self.index.first
        shard = np.searchsorted(first, who, side="right") - 1
        order = np.argsort(shard, kind="stable")
        found, begin = np.unique(shard[order], return_index=True)
        end = [*begin[1:].tolist(), len(order)]
        for k, lo, hi in zip(found.tolist(), begin.tolist(), end, strict=False):
            at = order[lo:hi]
            yield k, (at, np.ascontiguousarray(who[at] - first[k]))
