"""`persfl predict`: new rows, each by its own device's model."""

from __future__ import annotations

import argparse
import io
import sys
import warnings
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_float_dtype

from persfl.checks import many, named, some
from persfl.column_checks import refuse_missing
from persfl.commands.folder_answers import predict_folder
from persfl.commands.run_output import (
    Personalized,
    check_out,
    model_ids,
    model_of,
    read_like_fit,
)
from persfl.errors import InputError, UnseenWarning, need
from persfl.estimators.personalized import PersonalizedClassifier
from persfl.report.run_pages import checked_spec
from persfl.runs.run_folder import Folder
from persfl.scale.sharded_run import is_sharded
from persfl.sources.table import refuse_endless
from persfl.spreadsheets import write_csv
from persfl.terminal import visible

ALL = "all"
Mask = NDArray[np.bool_]  # of rows
_SKIP = "Leave them without a prediction: --unseen skip"


def predict(chosen: argparse.Namespace) -> int:
    """Predictions for new rows, written with row number and device so that they can be joined
    again.
    """
    if is_sharded(chosen.run):
        return predict_folder(chosen)
    if chosen.device is not None:
        raise InputError("--device is for runs over shards. Leave it out.")
    check_out(chosen.out, ".csv", ".parquet", table=chosen.table)
    folder = Folder.open(Path(chosen.run))
    _refuse_own(folder, chosen.out)
    spec = checked_spec(folder)
    model = model_of(chosen)
    features = spec["features"]
    if model.fitted_.schema.names not in (None, tuple(features)):
        where = str(folder.path / "spec.json")
        raise InputError(
            f"{where!r} names other columns than the run's models were fitted to."
        )
    frame = _read(Path(chosen.table), spec)
    X = frame[features]
    whose = model_ids(frame[spec["device"]], model)
    usable = _usable(X, whose, model, chosen)
    known = _known(whose, usable, model, chosen)
    out = _beside(frame, spec["device"], chosen.keep)
    out = _with_predictions(out, model, X, whose, usable & known)
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


def _refuse_own(folder: Folder, out: str | None) -> None:
    """Stop where predictions would be written over the run that makes them."""
    files = [(folder.path / name).resolve() for name in folder.index["files"]]
    if out is not None and Path(out).resolve() in files:
        raise InputError(
            f"--out {out!r} is a file of the run itself. Choose another file."
        )


def _read(path: Path, spec: Mapping[str, Any]) -> pd.DataFrame:
    """The table, read as the one of the fit was."""
    frame = read_like_fit(path, spec)
    if not len(frame):
        raise InputError(f"{path.name!r} has no rows to predict.")
    return frame


def _usable(
    X: pd.DataFrame, whose: pd.Series, model: Personalized, chosen: argparse.Namespace
) -> Mask:
    """(rows,) where nothing is missing that the model needs; with --missing error that is
    everywhere.
    """
    if chosen.missing == "error":
        table = Path(chosen.table)
        refuse_endless(X, table)
        if whose.isna().any():
            raise InputError(
                f"{many(int(whose.isna().sum()), 'row')} of {table.name!r} say not whose they are."
                " Fill that in, or leave them without a prediction: --missing skip."
            )
        if not model.impute:
            refuse_missing(X, fitting=False)
    gone = whose.isna() if model.impute else whose.isna() | X.isna().any(axis=1)
    floats = X[[name for name in X.columns if is_float_dtype(X[name])]]
    endless = np.isinf(floats.to_numpy(dtype=np.float64, na_value=np.nan)).any(axis=1)
    return np.asarray(~(gone | endless))


def _known(
    whose: pd.Series, usable: Mask, model: Personalized, chosen: argparse.Namespace
) -> Mask:
    """(rows,) where there is a model for the device, or one for all newcomers."""
    seen = whose.isin(model.devices_.tolist()).to_numpy()
    new = usable & ~seen
    strangers = pd.unique(whose[new]).tolist()
    if not strangers or chosen.unseen == "skip":
        return seen
    devices = many(len(strangers), "device")
    asked = chosen.unseen or model.unseen
    pooled = model.pooled_ is not None
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


def _beside(frame: pd.DataFrame, device: str, keep: list[str]) -> pd.DataFrame:
    """Row number, device and the columns to keep."""
    names = [str(name) for name in frame.columns]
    wanted = names if keep == [ALL] and ALL not in names else keep
    strange = [name for name in wanted if name not in names]
    if strange:
        raise InputError(
            f"--keep: the table has no {named(strange, 'column')}. Its columns: {some(names, 12)}."
        )
    out = frame[[device, *(name for name in wanted if name != device)]].copy()
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
    model: Personalized,
    X: pd.DataFrame,
    whose: pd.Series,
    which: Mask,
) -> pd.DataFrame:
    """Predictions as further columns, empty where there are none."""
    X = X[which]
    whose = whose[which]
    asked = (X, whose) if model.device is None else (X.assign(**{model.device: whose}),)
    columns: dict[str, NDArray[Any]] = {}
    with warnings.catch_warnings():
        # said already, in the words of this command
        warnings.simplefilter("ignore", UnseenWarning)
        if isinstance(model, PersonalizedClassifier):
            labels = model.classes_
            chances = np.empty((0, len(labels)))
            if which.any():
                chances = model.predict_proba(*asked)
            columns["prediction"] = labels[chances.argmax(axis=1)]
            for k, label in enumerate(labels.tolist()):
                columns[f"chance_{label}"] = chances[:, k]
        else:
            columns["prediction"] = (
                model.predict(*asked) if which.any() else np.empty(0)
            )
    # All at once: one column after the other takes the square of the time, and a run may have
    # many classes.
    taken = set(out.columns)
    found: dict[str, NDArray[Any]] = {}
    for name, values in columns.items():
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
            out.to_parquet(path, index=False)
        else:
            write_csv(out, path, verbatim=chosen.verbatim)
        print(f"{many(len(out), 'row')} with predictions in {path}")
