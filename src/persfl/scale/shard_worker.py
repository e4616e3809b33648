"""What a worker does with its shards: look at all rows, and, once the fleet knows what devices have
in common, make their models.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from persfl.devices import Devices
from persfl.evaluation.split import some_rows, taken
from persfl.methods.mixed.device_sums import DeviceSums
from persfl.scale.column_moments import ColumnMoments
from persfl.scale.executor import Answers
from persfl.scale.fleet_file import read_knower
from persfl.scale.fleet_model import FleetModel, Ids
from persfl.scale.held_rows import HeldRows
from persfl.scale.mixed_knower import sums_with_level
from persfl.scale.model_parts import (
    GROUP,
    HeldErrors,
    held_errors,
    helper_rows,
    model_rows,
    trial_fold,
    write_part,
)
from persfl.scale.run_layout import FINAL, HELPERS, MODELS, TRIAL, part_name
from persfl.scale.shard_index import ShardIndex
from persfl.scale.shard_questions import (
    Looked,
    Made,
    Question,
    RowQuestion,
    ShardLook,
    Sum,
)
from persfl.scale.shard_reader import ShardPiece, TableColumns, shard_pieces
from persfl.types import IntArray, Mask


@dataclass(frozen=True)
class ShardJob:
    """What all workers of a run are told."""

    shards: str
    run: str
    columns: TableColumns
    holdout: float
    seed: int
    ordered: bool
    named: int

    def begin(self) -> Answers:
        return ShardWorker(self).answer


class ShardWorker:
    """One worker. It holds the index and what the fleet knows, and one row group at a time."""

    def __init__(self, job: ShardJob) -> None:
        self.job = job
        self.index = ShardIndex.read(job.shards)
        self.held = HeldRows(self._pieces, job.holdout, job.seed, job.ordered)

    def answer(self, question: Question) -> Any:
        """Answer a question about a shard."""
        if isinstance(question, ShardLook):
            return self._looked(question)
        if isinstance(question, Sum):
            return self._summed(question)
        if isinstance(question, RowQuestion):
            return self.held.answer(question)
        trial = self._trial if self.job.holdout > 0 else None
        return make_part(self.job, self.index, question.shard, self._final, trial)

    @cached_property
    def _final(self) -> FleetModel:
        return read_knower(Path(self.job.run) / FINAL, self.job.named)

    @cached_property
    def _trial(self) -> FleetModel:
        # errors alone are wanted of it, no helpers
        return read_knower(Path(self.job.run) / TRIAL, 0)

    def _pieces(self, shard: int) -> Iterator[ShardPiece]:
        return shard_pieces(self.index, shard, self.job.columns)

    def _looked(self, question: ShardLook) -> Looked:
        return looked_at(self._pieces(question.shard), self.job, question.wanted)

    def _summed(self, question: Sum) -> DeviceSums:
        job = self.job
        found = []
        for piece in self._pieces(question.shard):
            rows = piece.rows
            if question.trial:
                fold = trial_fold(rows, piece.first, job.holdout, job.seed, job.ordered)
                rows = some_rows(rows, fold.learn)
            found.append(sums_with_level(question.units.inside(rows)))
        return DeviceSums(*map(np.concatenate, zip(*found, strict=True)))


def looked_at(pieces: Iterable[ShardPiece], job: ShardJob, wanted: IntArray) -> Looked:
    """What columns are like, and the devices at the positions `wanted`."""
    moments = ColumnMoments.none(len(job.columns.features) + 1)
    learned = moments
    found: list[Devices] = []
    ids: list[Ids] = []
    learn: list[Mask] = []
    for piece in pieces:
        rows = piece.rows
        both = np.column_stack([rows.X, rows.y])
        fold = trial_fold(rows, piece.first, job.holdout, job.seed, job.ordered)
        moments = moments.joined(ColumnMoments.of(both, rows.weight))
        some = ColumnMoments.of(both[fold.learn], rows.weight[fold.learn])
        learned = learned.joined(some)
        which = np.isin(piece.positions, wanted)
        if which.any():
            found.append(taken(rows, which))
            ids.append(np.asarray(piece.ids)[which])
            learn.append(fold.learn[which[rows.owner]])
    return Looked(moments, learned, *_together(found, ids, learn, job.columns))


def _together(
    rows: Sequence[Devices],
    ids: Sequence[Ids],
    learn: Sequence[Mask],
    columns: TableColumns,
) -> tuple[Ids, Devices, Mask]:
    if not rows:
        none = np.zeros(0)
        X = np.zeros((0, len(columns.features)))
        return none, Devices(X, none, none, np.zeros(1, dtype=np.int64), []), none > 0
    everything = Devices.joined(rows)
    everything.columns = list(columns.features)
    return np.concatenate(ids), everything, np.concatenate(learn)


def make_part(
    job: ShardJob,
    index: ShardIndex,
    shard: int,
    final: FleetModel,
    trial: FleetModel | None,
) -> Made:
    """The models of a shard's devices, and their errors in a trial, as parts of the two tables."""
    models = []
    helpers = []
    for piece in shard_pieces(index, shard, job.columns):
        errors = trial_errors(job, piece, trial)
        told = final.told(piece.rows, piece.positions)
        W = final.coefficients(told.models)
        features = job.columns.features
        models.append(model_rows(piece, told, W, errors, features, index.device))
        helpers.append(helper_rows(piece, told, final, index.device))
    run = Path(job.run)
    name = part_name(shard)
    write_part(run / HELPERS / name, helpers, GROUP * max(job.named, 1))
    write_part(run / MODELS / name, models, GROUP)
    return Made(sum(map(len, models)))


def trial_errors(
    job: ShardJob, piece: ShardPiece, trial: FleetModel | None
) -> HeldErrors | None:
    """Errors on rows held back, where there is a trial."""
    if trial is None:
        return None
    return held_errors(trial, piece, job.holdout, job.seed, job.ordered)
