"""What a worker does with its shards: look at all rows, and, once the fleet knows what devices have
in common, make their models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from persfl.devices import Devices
from persfl.evaluation.split import taken
from persfl.scale.column_moments import ColumnMoments
from persfl.scale.executor import Answers
from persfl.scale.fleet_file import read_knower
from persfl.scale.fleet_model import FleetModel, Ids
from persfl.scale.model_parts import (
    GROUP,
    HELPERS,
    MODELS,
    HeldErrors,
    held_back,
    held_errors,
    helper_rows,
    model_rows,
    part_name,
    write_part,
)
from persfl.scale.shard_index import ShardIndex
from persfl.scale.shard_reader import ShardPiece, TableColumns, shard_pieces
from persfl.types import IntArray, Mask

FINAL = "learned.npz"
TRIAL = "trial.npz"


@dataclass(frozen=True)
class Look:
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


class Made(NamedTuple):
    """How many devices of a shard have models now."""

    devices: int


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

    def answer(self, question: Look | Make) -> Looked | Made:
        """Answer a question about a shard."""
        if isinstance(question, Look):
            return self._looked(question)
        trial = self._trial if self.job.holdout > 0 else None
        return make_part(self.job, self.index, question.shard, self._final, trial)

    @cached_property
    def _final(self) -> FleetModel:
        return read_knower(Path(self.job.run) / FINAL, self.job.named)

    @cached_property
    def _trial(self) -> FleetModel:
        return read_knower(Path(self.job.run) / TRIAL, self.job.named)

    def _looked(self, question: Look) -> Looked:
        job = self.job
        moments = ColumnMoments.none(len(job.columns.features) + 1)
        found: list[Devices] = []
        ids: list[Ids] = []
        learn: list[Mask] = []
        for piece in shard_pieces(self.index, question.shard, job.columns):
            rows = piece.rows
            both = np.column_stack([rows.X, rows.y])
            moments = moments.joined(ColumnMoments.of(both, rows.weight))
            which = np.isin(piece.positions, question.wanted)
            if which.any():
                fold = held_back(rows, piece.first, job.holdout, job.seed, job.ordered)
                found.append(taken(rows, which))
                ids.append(piece.ids.to_numpy(zero_copy_only=False)[which])
                learn.append(fold.learn[which[rows.owner]])
        return Looked(moments, *_together(found, ids, learn, job.columns))


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
        errors = _errors(job, piece, trial)
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


def _errors(
    job: ShardJob, piece: ShardPiece, trial: FleetModel | None
) -> HeldErrors | None:
    if trial is None:
        return None
    return held_errors(trial, piece, job.holdout, job.seed, job.ordered)
