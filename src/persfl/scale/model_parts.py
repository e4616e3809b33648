"""The table of models, a part for each shard: a row for each device, and one for each helper.

models/part-00000.parquet     device, rows, coef_..., intercept, own, fleet, neighbours, held, error
helpers/part-00000.parquet    device, peer, share, alike, error
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from persfl.devices import Devices
from persfl.evaluation.row_order import Fold, RowOrder
from persfl.evaluation.split import some_rows, split_masks
from persfl.files import write_whole
from persfl.methods.mixed.told_models import ToldModels
from persfl.scale.fleet_model import FleetModel
from persfl.scale.run_layout import COEF
from persfl.scale.shard_reader import ShardPiece
from persfl.types import Array, IntArray

if TYPE_CHECKING:
    import pyarrow as pa

GROUP = 8_192  # devices in a row group: what is read to find one of them


class HeldErrors(NamedTuple):
    """(devices,) how many rows were held back, and mean squared errors on them of the personal
    model and of one model for all; NaN where none were.
    """

    held: IntArray
    personal: Array
    pooled: Array


def held_errors(
    model: FleetModel, piece: ShardPiece, holdout: float, seed: int, ordered: bool
) -> HeldErrors:
    """Errors of a trial: its models have not seen the rows held back."""
    rows = piece.rows
    fold = trial_fold(rows, piece.first, holdout, seed, ordered)
    told = model.told(some_rows(rows, fold.learn), piece.positions)
    W = model.coefficients(told.models)
    one = model.coefficients(model.knower.pooled[None])
    test = some_rows(rows, fold.judge)
    personal = _said(W, test.X, test.owner)
    personal += model.by_trees(test.X, test.owner + piece.first)
    pooled = _said(np.repeat(one, len(rows), axis=0), test.X, test.owner)
    errors = [_mean_square(test, said) for said in (personal, pooled)]
    return HeldErrors(test.counts, errors[0], errors[1])


def trial_fold(
    rows: Devices, first: int, holdout: float, seed: int, ordered: bool
) -> Fold:
    """Which rows a trial learns from and which it keeps back, as a fit in one process has it."""
    order = RowOrder(ordered=ordered)
    return split_masks(rows, holdout, seed=seed, first=first, order=order)


def _said(W: Array, X: Array, owner: IntArray) -> Array:
    mine = W[owner]
    return np.asarray(np.einsum("rj,rj->r", mine[:, :-1], X) + mine[:, -1])


def _mean_square(test: Devices, said: Array) -> Array:
    away = test.weight * (test.y - said) ** 2
    n = len(test)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.bincount(test.owner, away, minlength=n) / test.total)


def model_rows(
    piece: ShardPiece,
    told: ToldModels,
    coefficients: Array,
    errors: HeldErrors | None,
    features: Sequence[str],
    device: str,
) -> pa.Table:
    """The rows of the table of models for these devices."""
    import pyarrow as pa

    n = len(piece.rows)
    columns: dict[str, Any] = {device: piece.ids, "rows": piece.rows.counts}
    for k, name in enumerate(features):
        columns[COEF + name] = coefficients[:, k]
    columns["intercept"] = coefficients[:, -1]
    for k, name in enumerate(("own", "fleet", "neighbours")):
        columns[name] = pa.array(told.made_of[:, k], from_pandas=True)
    unknown = np.full(n, np.nan)
    none = HeldErrors(np.zeros(n, dtype=np.int64), unknown, unknown)
    held = errors or none
    columns["held"] = held.held
    columns["error"] = pa.array(held.personal, from_pandas=True)
    columns["error_pooled"] = pa.array(held.pooled, from_pandas=True)
    return pa.table(columns)


def helper_rows(
    piece: ShardPiece, told: ToldModels, model: FleetModel, device: str
) -> pa.Table:
    """The rows of the table of helpers, errors in the label's units."""
    import pyarrow as pa

    n, named = told.at.shape
    owner = np.repeat(np.arange(n), named)
    share = told.share.ravel()
    other = told.at.ravel()
    missed = told.missed.ravel()
    chance = told.chance.ravel()
    known = np.isfinite(chance)  # there is none for nobody, and for the device itself
    theirs = model.knower.peers[other[known]].tolist()
    columns = {
        device: piece.ids.take(pa.array(owner[known])),
        "peer": pa.array(theirs, type=piece.ids.type),
        "share": share[known],
        "alike": chance[known],
        "error": pa.array(missed[known] * model.units.label_scale**2, from_pandas=True),
    }
    return pa.table(columns)


def write_part(path: Path, parts: Sequence[pa.Table], group: int) -> None:
    """One file of the table: all of it, or nothing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    made = io.BytesIO()
    pq.write_table(pa.concat_tables(parts), made, row_group_size=group)
    write_whole(path, made.getvalue())
