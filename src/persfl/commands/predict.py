"""`persfl predict`: new rows, each by its own device's model."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Container
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_float_dtype

from persfl.checks import many, named, some
from persfl.column_checks import refuse_missing
from persfl.commands.row_predictors import (
    RowPredictor,
    RunPredictor,
    chance_columns,
    filled,
    predictor_of,
)
from persfl.commands.run_tables import check_out, model_ids
from persfl.errors import InputError, need
from persfl.files import write_whole
from persfl.run_kinds import is_sharded
from persfl.sources.table import refuse_endless
from persfl.spreadsheets import write_csv
from persfl.terminal import visible

Mask = NDArray[np.bool_]  # of rows
_SKIP = "Leave them without a prediction: --unseen skip"


def predict(chosen: argparse.Namespace) -> int:
    """Predictions for new rows, written with row number and device so that they can be joined
    again.
    """
    if is_sharded(chosen.run):
        from persfl.commands.folder_answers import predict_folder

        return predict_folder(chosen)
    if chosen.device is not None:
        raise InputError("--device is for runs over shards. Leave it out.")
    check_out(chosen.out, ".csv", ".parquet", table=chosen.table)
    source = predictor_of(chosen)
    frame = source.read(Path(chosen.table))
    if not len(frame):
        raise InputError(f"{Path(chosen.table).name!r} has no rows to predict.")
    X = frame[source.features]
    if chosen.impute:
        X = filled(X, source)
    whose = _owners(frame, source)
    usable = _usable(X, whose, source, chosen)
    known = _known(whose, usable, source, chosen)
    out = _with_predictions(
        _beside(frame, source, chosen), source, X, whose, usable & known
    )
    _write(out, chosen)
    reasons = {
        "values missing or infinite": ~usable,
        "devices that were not there when fitting": usable & ~known,
    }
    for why, rows in reasons.items():
        if rows.any():
            count = many(int(rows.sum()), "row")
            print(f"persfl: {count} without a prediction: {why}.", file=sys.stderr)
    return 0


def _owners(frame: pd.DataFrame, source: RowPredictor) -> pd.Series:
    """Whose row each is, by the ids of the models; at a node all are its own."""
    if isinstance(source, RunPredictor):
        return model_ids(frame[source.spec["device"]], source.fitted.devices)
    return pd.Series("", index=frame.index)


def _usable(
    X: pd.DataFrame,
    whose: pd.Series,
    source: RowPredictor,
    chosen: argparse.Namespace,
) -> Mask:
    """(rows,) where nothing is missing that the model needs; with --missing error that is
    everywhere.
    """
    fills = source.schema.impute
    if chosen.missing == "error":
        table = Path(chosen.table)
        refuse_endless(X, table)
        if whose.isna().any():
            raise InputError(
                f"{many(int(whose.isna().sum()), 'row')} of {table.name!r} say not whose they are."
                " Fill that in, or leave them without a prediction: --missing skip."
            )
        if not fills:
            refuse_missing(X, fitting=False)
    gone = whose.isna() if fills else whose.isna() | X.isna().any(axis=1)
    floats = X[[name for name in X.columns if is_float_dtype(X[name])]]
    endless = np.isinf(floats.to_numpy(dtype=np.float64, na_value=np.nan)).any(axis=1)
    return np.asarray(~(gone | endless))


def _known(
    whose: pd.Series, usable: Mask, source: RowPredictor, chosen: argparse.Namespace
) -> Mask:
    """(rows,) where there is a model for the device, or one for all newcomers."""
    if not isinstance(source, RunPredictor):
        return np.ones(len(whose), dtype=bool)
    fitted = source.fitted
    seen = whose.isin(fitted.devices.tolist()).to_numpy()
    new = usable & ~seen
    strangers = pd.unique(whose[new]).tolist()
    if not strangers or chosen.unseen == "skip":
        return seen
    devices = many(len(strangers), "device")
    asked = chosen.unseen or fitted.settings.unseen
    pooled = fitted.pooled is not None
    if asked == "pooled" and pooled:
        print(
            f"persfl: {many(int(new.sum()), 'row')} of {devices} not there when fitting"
            f" ({some(strangers)}): predicted by one model for all.",
            file=sys.stderr,
        )
        return np.ones(len(whose), dtype=bool)
    what = f"{devices} of the table ({some(strangers)}) not there when fitting."
    if asked == "pooled":
        raise InputError(f"{what} This run has no model for newcomers. {_SKIP}.")
    by_all = "predict them by one model for all: --unseen pooled"
    other = by_all if pooled else "fit again with their rows"
    raise InputError(f"{what} {_SKIP}, or {other}.")


def _beside(
    frame: pd.DataFrame, source: RowPredictor, chosen: argparse.Namespace
) -> pd.DataFrame:
    """Row number, device and the columns to keep: all of the table's, or those that are named."""
    names = [str(name) for name in frame.columns]
    if chosen.only and chosen.keep:
        raise InputError("--only keeps no columns, and --keep names some. Use one.")
    wanted = chosen.keep or ([] if chosen.only else names)
    strange = [name for name in wanted if name not in names]
    if strange:
        raise InputError(
            f"--keep: the table has no {named(strange, 'column')}. Its columns: {some(names, 12)}."
        )
    device = [] if source.device is None else [source.device]
    first = [name for name in device if chosen.keep or chosen.only]
    out = frame[[*first, *(name for name in wanted if name not in first)]].copy()
    out.insert(0, unused("row", out.columns), np.arange(1, len(frame) + 1))
    return out


def unused(name: str, taken: Container[str]) -> str:
    """A column name that is not taken yet.

    >>> unused("row", ["who"]), unused("row", ["row"])
    ('row', 'row_2')
    """
    number = 2
    found = name
    while found in taken:
        found = f"{name}_{number}"
        number = number + 1
    return found


def _with_predictions(
    out: pd.DataFrame,
    source: RowPredictor,
    X: pd.DataFrame,
    whose: pd.Series,
    which: Mask,
) -> pd.DataFrame:
    """Predictions as further columns, empty where there are none."""
    schema = source.schema
    classes = schema.labels.classes
    answers = np.empty((0, schema.labels.count) if classes is not None else 0)
    if which.any():
        answers = source.answers(schema.table_numbers(X[which]), whose[which])
    # All at once: one column after the other takes the square of the time, and a run may have
    # many classes.
    taken = set(out.columns)
    found: dict[str, NDArray[Any]] = {}
    for name, values in chance_columns(answers, classes).items():
        free = unused(name, taken)
        taken.add(free)
        found[free] = _spread(values, which)
    return pd.concat([out, pd.DataFrame(found, index=out.index)], axis=1)


def _spread(values: NDArray[Any], which: Mask) -> NDArray[Any]:
    """Values at the rows of a mask; nothing elsewhere."""
    if which.all():
        return values
    wide = np.full(len(which), None, dtype=object)
    wide[which] = values.tolist()
    return pd.Series(wide).infer_objects().to_numpy()


def _write(out: pd.DataFrame, chosen: argparse.Namespace) -> None:
    """Into a file, or as CSV: on a terminal with nothing in it that moves the cursor."""
    if chosen.out is None and sys.stdout.isatty():
        text = io.StringIO()
        write_csv(out, text, verbatim=chosen.verbatim)
        print(visible(text.getvalue()), end="")
    elif chosen.out is None:
        write_csv(out, sys.stdout, verbatim=chosen.verbatim)
    else:
        path = Path(chosen.out)
        if path.suffix == ".parquet":
            need("pyarrow", extra="parquet", why="writing a Parquet file")
            write_whole(path, lambda file: out.to_parquet(file, index=False))
        else:
            write_csv(out, path, verbatim=chosen.verbatim)
        print(f"{many(len(out), 'row')} with predictions in {path}")
