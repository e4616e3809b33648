"""At a worker: the rows of its shards, held as long as a run asks about them, and its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from persfl.batches import batches
from persfl.devices import Devices
from persfl.evaluation.rivals import pooled_sums
from persfl.evaluation.split import some_rows
from persfl.fleets.compiled_engine import pair_kernel
from persfl.fleets.engine import Slice
from persfl.learners.shrunk import shrunk
from persfl.proposers.gradient import GradientStep
from persfl.scale.model_parts import trial_fold
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
from persfl.scale.shard_reader import ShardPiece
from persfl.seeds import Stream
from persfl.types import Array, Data, IntArray

Number = TypeVar("Number", np.float64, np.int64)
Pieces = Callable[[int], Iterable[ShardPiece]]


class HeldRows:
    """What a worker knows between questions: rows are read once for a trial, and once for all."""

    def __init__(
        self, pieces: Pieces, holdout: float, seed: int, ordered: bool
    ) -> None:
        self._pieces = pieces
        self._fold = (holdout, seed, ordered)
        self._trial = False
        self._held: dict[int, tuple[Counted, Devices]] = {}

    def answer(self, question: RowQuestion) -> Counted | Data | PooledSums | Array:
        """Answer a question about the rows of a shard."""
        counted, rows = self._of(question.shard, question.use)
        if isinstance(question, Count):
            return counted
        if isinstance(question, Fetch):
            return rows[question.place]
        if isinstance(question, Step):
            return _stepped(question, rows)
        if isinstance(question, Score):
            return _scored(question, rows)
        if isinstance(question, Pool):
            return PooledSums(*pooled_sums(question.learner, rows))
        assert isinstance(question, FitOwn)
        return shrunk(question.learner, rows, question.anchor)

    def _of(self, shard: int, use: RowUse) -> tuple[Counted, Devices]:
        if use.trial != self._trial:
            self._held.clear()
            self._trial = use.trial
        if shard not in self._held:
            self._held[shard] = self._read(shard, use)
        return self._held[shard]

    def _read(self, shard: int, use: RowUse) -> tuple[Counted, Devices]:
        found = []
        ids = []
        for piece in self._pieces(shard):
            rows = piece.rows
            if use.trial:
                fold = trial_fold(rows, piece.first, *self._fold)
                rows = some_rows(rows, fold.learn)
            found.append(use.units.inside(rows))
            ids.append(np.asarray(piece.ids))
        rows = Devices.joined(found)
        return Counted(np.concatenate(ids), rows.counts, rows.total), rows


def _stepped(question: Step, rows: Devices) -> Array:
    """(P, size) where steps lead, by compiled code where there is some."""
    learner, proposer, models = question.learner, question.proposer, question.models
    kernel = pair_kernel(learner, proposer)
    if kernel is not None:
        # whoever asks scores the answers itself
        unscored = Slice(_one_row(rows.features), np.zeros(len(models), dtype=np.int64))
        whose = Slice(rows, _plain(question.who)[:, None])
        return kernel.proposals(whose, unscored, _plain(models))[:, 0]
    place = Stream(question.keys)
    return np.concatenate(
        [
            proposer.answer(
                learner, models[part], rows.gather(question.who[part]), place[part]
            )
            for part in _parts(rows, question.who)
        ]
    )


def _scored(question: Score, rows: Devices) -> Array:
    """(P, K) losses, by compiled code where there is some."""
    learner, who = question.learner, question.who
    K, size = question.models.shape[1:]
    models = np.broadcast_to(question.models, (len(who), K, size))
    kernel = pair_kernel(learner, GradientStep(1.0))
    if kernel is not None:
        mine = Slice(rows, np.repeat(who, K))
        nobody = Slice(rows, np.empty((len(who) * K, 0), dtype=np.int64))
        flat = _plain(models).reshape(-1, size)
        return kernel.answers(nobody, mine, flat).losses.reshape(-1, K)
    return np.concatenate(
        [
            learner.loss(models[part], rows.gather(who[part, None]))
            for part in _parts(rows, who)
        ]
    )


def _plain(sent: NDArray[Number]) -> NDArray[Number]:
    """As compiled code takes arrays: what another process sent may only be read."""
    return np.require(sent, requirements=("C", "W"))


def _parts(rows: Devices, who: IntArray) -> list[slice]:
    """Devices in parts whose gathered rows fit into a cache."""
    longest = int(rows.counts[who].max(initial=1))
    return batches(len(who), 8 * (rows.features + 2) * longest)


def _one_row(features: int) -> Devices:
    """A device with a row of nothing."""
    start = np.array([0, 1])
    return Devices(np.zeros((1, features)), np.zeros(1), np.ones(1), start, [0])
