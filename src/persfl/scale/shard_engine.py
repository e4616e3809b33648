"""The engine of a fleet over shards, behind the seam that all engines stand behind.

A method asks a fleet, and a fleet an engine (`persfl.fleets.engine`): this one has no rows. Rows
stay with long-lived workers, who hold those of their shards in the units of the run; models, and
what a method remembers, stay at the coordinator: one number a device and coefficient. A round's
questions go by shard in three batches: models to whoever has the peers asked, who step on their
rows; the answers to whoever has those who asked, who score them; and the losses come back. Workers
remember nothing but rows, so one that dies is replaced and asked again, and the result is the same.
The loop, the methods and what fleets keep of steps are those of one process: nothing of them is
written twice, and `persfl.testing.check_fleet` is the contract here, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from persfl.batches import batches
from persfl.errors import InputError
from persfl.fleets.batched import Batched
from persfl.fleets.engine import EngineTask, Slice
from persfl.fleets.in_process import InProcessFleet
from persfl.fleets.rows import FleetRows
from persfl.learners.linear import Linear
from persfl.proposers.gradient import GradientStep
from persfl.scale.rows_elsewhere import ShardRows
from persfl.scale.shard_desk import ShardDesk
from persfl.seeds import Stream, stream
from persfl.types import Answers, Array, IntArray, Learner, Model, Models, Proposer

ROOM = 2**28  # bytes of answers that are under way at a time


class ShardHome(FleetRows):
    """Rows that are with workers; labels were looked at as they were read."""

    def serve(self, learners: Sequence[Learner]) -> None:
        self.learners = learners


class Sharded(Batched):
    """As `Batched`, with the pairs at the workers."""

    def __init__(self, task: EngineTask, desk: ShardDesk) -> None:
        super().__init__(task)
        self.desk = desk
        proposer = task.proposer
        if type(self.learner) is not Linear or type(proposer) is not GradientStep:
            raise InputError(
                f"over shards linear models take gradient steps. Got {self.learner!r} with"
                f" {proposer!r}."
            )
        self.linear = self.learner
        self.steps = proposer
        # whom the last answers are of, and the answers
        self._last: tuple[IntArray, Array] | None = None

    @property
    def models(self) -> Array:
        """(T, size) one model per target."""
        return self._models

    @models.setter
    def models(self, models: Models) -> None:
        self._models = np.ascontiguousarray(models, dtype=np.float64)
        self._last = None

    def started(self, start: str | None) -> Array:
        """(T, size) zeros, as linear models begin."""
        rows = self.rows
        return np.zeros((len(rows.targets), self.linear.size(rows.static.features)))

    def answers(self, peers: IntArray, asked: Slice, r: int) -> Answers:
        """Losses and lengths of all pairs."""
        losses, lengths, proposals = [], [], []
        targets = self.rows.targets
        for part in self._chunks(asked):
            told = self._told(part, peers, r)
            everything = np.concatenate([self.models[part, None], told], axis=1)
            losses.append(self.desk.losses(self.linear, everything, targets[part]))
            lengths.append(
                self.steps.length(self.linear, self.models[part, None], told)
            )
            proposals.append(told)
        self._last = (peers, proposals[0]) if len(proposals) == 1 else None
        found = np.concatenate(losses)
        found[:, 1:][peers < 0] = np.inf
        return Answers(found, np.concatenate(lengths))

    def _answered(self, peers: IntArray, asked: Slice, r: int) -> Array:
        if self._last is not None and self._last[0] is peers:
            return self._last[1]
        parts = [self._told(part, peers, r) for part in self._chunks(asked)]
        return np.concatenate(parts)

    def hold(self, models: Array, r: int) -> None:
        """These models from now on."""
        super().hold(models, r)
        self._last = None

    def step(self, models: Array, rows: Slice, place: Stream) -> Array:
        """(D, size) where the proposer's step on these devices' rows takes these models."""
        return self.desk.stepped(self.linear, self.steps, models, rows.which, place)

    def score(self, models: Array, rows: Slice) -> Array:
        """(D, K) the losses of K models on these devices' rows."""
        return self.desk.losses(self.linear, models[None], rows.which)

    def _told(self, part: slice, peers: IntArray, r: int) -> Array:
        """(C, S, size) what these targets' peers answer; NaN for nobody."""
        mine = peers[part]
        t, s = np.nonzero(mine >= 0)
        told = np.full((*mine.shape, self.models.shape[1]), np.nan)
        place = stream(self.task.seed, "answer", r)
        place = place.at(self.rows.targets[part, None], mine)
        told[t, s] = self.desk.stepped(
            self.linear,
            self.steps,
            self.models[part][t],
            mine[t, s],
            Stream(place.keys[t, s]),
        )
        return told

    def _chunks(self, rows: Slice) -> list[slice]:
        """Targets in parts whose answers have room."""
        each = 8 * self.models.shape[1] * (2 + rows.which[0].size)
        return batches(len(rows.which), each, ROOM)


def sharded_fleet(
    rows: ShardRows,
    learner: Learner,
    proposer: Proposer,
    start: Sequence[Model] | None,
    seed: int,
) -> InProcessFleet:
    """A fleet of all devices of the shards."""
    return InProcessFleet(
        ShardHome(rows, targets=None, holdout=0.0, seed=seed),
        learner=learner,
        proposer=proposer,
        targets=None,
        seed=seed,
        start=start,
        holdout=0.0,
        local=None,
        engine=lambda task: Sharded(task, rows.desk),
    )
