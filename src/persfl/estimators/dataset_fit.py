"""Fits of a folder that is larger than memory, for estimators: models are a table on the disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from persfl.checks import some
from persfl.encoding import as_frame, is_table
from persfl.errors import InputError, UnseenWarning, warn
from persfl.estimators.base import drawn_seed
from persfl.folder_locks import holding
from persfl.methods import method_of
from persfl.scale.dataset import ParquetDataset
from persfl.scale.engines import engine_of
from persfl.scale.executor import Executor
from persfl.scale.model_table import ModelTable
from persfl.scale.run_layout import SHARDS
from persfl.scale.sharded_fit import ShardedFit, fit_shards
from persfl.types import Array

if TYPE_CHECKING:
    from persfl.estimators.base import Personalized
    from persfl.fitting.schema import Ids, Table

# parameters of an estimator that a fit over shards goes by, or that change nothing there
KNOWN = {
    *("device", "method", "holdout", "ordered", "n_jobs", "random_state", "unseen"),
    *("units", "trials"),
}


def fitted_table(
    model: Personalized,
    rows: ParquetDataset,
    engine: str | Executor,
    out: str | Path | None,
) -> ModelTable:
    """Fit the rows of a folder; a run that was cut goes on."""
    if out is None:
        raise InputError("say where the table of models goes: fit(rows, out='run').")
    usual = type(model)().get_params(deep=False)
    for name, value in model.get_params(deep=False).items():
        if name not in KNOWN and value is not usual[name] and value != usual[name]:
            raise InputError(
                f"{name} is for tables that fit one process. Leave it out: a fit of a"
                " ParquetDataset is of linear models of numbers."
            )
    if model.units not in ("auto", "shared"):
        raise InputError(
            f"units={model.units!r} is for tables that fit one process. Leave it out: over shards"
            " units are shared."
        )
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    jobs = model.n_jobs or 1
    executor = engine_of(engine, jobs) if isinstance(engine, str) else engine
    with holding(folder):
        index = rows.shards(folder / SHARDS)
        asked = ShardedFit(
            rows.columns(index),
            method_of(model.method),
            holdout=model.holdout,
            seed=drawn_seed(model.random_state),
            ordered=bool(model.ordered),
        )
        fit_shards(index, folder, asked, executor, resume=True)
    return ModelTable.open(folder)


def table_says(table: ModelTable, X: Table, devices: Ids) -> Array:
    """(rows,) predictions by a table of models; of newcomers by what the fleet says of them."""
    import pyarrow as pa

    column = devices if isinstance(devices, str) else table.device
    if (
        isinstance(devices, str | None)
        and is_table(X)
        and column in as_frame(X).columns
    ):
        devices = as_frame(X)[column]
    if isinstance(devices, str | None):
        raise InputError(
            f"say whose rows these are: X has no column {column!r}. Hand in devices=..."
        )
    weights = table.weights
    numbers = as_frame(X)[table.features] if is_table(X) else X
    matrix = np.asarray(numbers, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[1] != len(table.features):
        raise InputError(f"X must have {len(table.features)} columns.")
    if not np.isfinite(matrix).all():
        raise InputError(
            "X has missing or infinite values. Fill them in, or drop them."
        )
    ids = pa.array(list(devices)).cast(weights.ids.type)
    place = weights.places(pa.chunked_array([ids]))
    if (place < 0).any():
        strangers = some(ids.filter(pa.array(place < 0)).unique().to_pylist())
        warn(
            f"{int((place < 0).sum())} rows of devices that were not there when fitting"
            f" ({strangers}): predicted by one model for all.",
            UnseenWarning,
        )
    return weights.predict(matrix, place)
