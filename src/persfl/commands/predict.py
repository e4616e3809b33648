"""`persfl predict`: new rows, each by its own device's model."""

from __future__ import annotations

import argparse
import io
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from persfl.checks import many, named, some
from persfl.commands.run_output import check_out, model_of
from persfl.encoding import refuse_missing
from persfl.errors import InputError, UnseenWarning, need
from persfl.report.pages import checked_spec
from persfl.runs import Folder
from persfl.sources.table import read_frame, refuse_endless
from persfl.spreadsheets import write_csv
from persfl.terminal import visible

ALL = "all"
_SKIP = "Leave them without a prediction: --unseen skip"


def predict(chosen: argparse.Namespace) -> int:
    """Predictions for new rows, written with row number and device so that they can be joined
    again.
    """
    check_out(chosen.out, ".csv", ".parquet", table=chosen.table)
    folder = Folder.open(Path(chosen.run))
    _refuse_own(folder, chosen.out)
    spec, model = checked_spec(folder), model_of(chosen)
    if list(getattr(model, "feature_names_in_", spec["features"])) != spec["features"]:
        where = str(folder.path / "spec.json")
        raise InputError(
            f"{where!r} names other columns than the run's models were fitted to."
        )
    frame = _read(Path(chosen.table), spec)
    whose = _ids(frame[spec["device"]], model)
    usable = _usable(frame[spec["features"]], whose, model, chosen)
    known = _known(whose, usable, model, chosen)
    out = _kept(frame, spec["device"], chosen.keep)
    _add(out, model, frame[spec["features"]], whose, usable & known)
    left = (
        [(many(int((~usable).sum()), "row"), "values missing or infinite")]
        if not usable.all()
        else []
    )
    if (usable & ~known).any():
        left.append(
            (
                many(int((usable & ~known).sum()), "row"),
                "devices that were not there when fitting",
            )
        )
    _write(out, chosen)
    for rows, why in left:
        print(f"persfl: {rows} without a prediction: {why}.", file=sys.stderr)
    return 0


def _refuse_own(folder: Folder, out: str | None) -> None:
    """Stop where predictions would be written over the run that makes them."""
    place = Path(out).resolve() if out is not None else None
    files = [(folder.path / name).resolve() for name in folder.index["files"]]
    if place in files:
        raise InputError(
            f"--out {out!r} is a file of the run itself. Choose another file."
        )


def _read(path: Path, spec: Mapping[str, Any]) -> pd.DataFrame:
    """The table, read as the one of the fit was."""
    frame = read_frame(
        path,
        separator=spec["separator"],
        decimal=spec["decimal"],
        thousands=spec.get("thousands"),
        text=spec["device"],
    )
    absent = [
        name
        for name in [spec["device"], *spec["features"]]
        if name not in frame.columns
    ]
    if absent:
        raise InputError(
            f"{path.name!r} has no {named(absent, 'column')}, which the run was fitted with."
        )
    if not len(frame):
        raise InputError(f"{path.name!r} has no rows to predict.")
    return frame


def _ids(whose: pd.Series, model: Any) -> pd.Series:
    """Whose row it is, by the ids that the model has: one saved from Python may have numbers."""
    known = {str(name): name for name in model.devices_.tolist()}
    return whose.map(lambda name: known.get(name, name), na_action="ignore")


def _usable(
    X: pd.DataFrame, whose: pd.Series, model: Any, chosen: argparse.Namespace
) -> Any:
    """(rows,) where nothing is missing that the model needs; with --missing error that is
    everywhere.
    """
    endless = pd.Series(False, index=X.index)
    for name in X.columns:
        if pd.api.types.is_float_dtype(X[name]):
            endless |= np.isinf(X[name].to_numpy(dtype=np.float64, na_value=np.nan))
    if chosen.missing == "error":
        refuse_endless(X, Path(chosen.table))
        if whose.isna().any():
            raise InputError(
                f"{many(int(whose.isna().sum()), 'row')} of {Path(chosen.table).name!r} say not"
                " whose they are. Fill that in, or leave them without a prediction: --missing"
                " skip."
            )
        if not model.impute:
            refuse_missing(X, fitting=False)
    gone = whose.isna() if model.impute else whose.isna() | X.isna().any(axis=1)
    return (~(gone | endless)).to_numpy()


def _known(
    whose: pd.Series, usable: Any, model: Any, chosen: argparse.Namespace
) -> Any:
    """(rows,) where there is a model for the device, or one for all newcomers."""
    seen = whose.isin(model.devices_.tolist()).to_numpy()
    strangers = pd.unique(whose[usable & ~seen]).tolist()
    if not strangers or chosen.unseen == "skip":
        return seen
    asked = chosen.unseen or model.unseen
    if asked == "pooled" and model.pooled_ is not None:
        print(
            f"persfl: {many(int((usable & ~seen).sum()), 'row')} of"
            f" {many(len(strangers), 'device')} not there when fitting ({some(strangers)}):"
            " predicted by one model for all.",
            file=sys.stderr,
        )
        return np.ones(len(whose), dtype=bool)
    count = many(len(strangers), "device")
    what = f"{count} of the table ({some(strangers)}) not there when fitting."
    if asked == "pooled":
        raise InputError(f"{what} This run has no model for newcomers. {_SKIP}.")
    pooled = model.pooled_ is not None
    other = (
        "predict them by one model for all: --unseen pooled"
        if pooled
        else "fit again with their rows"
    )
    raise InputError(f"{what} {_SKIP}, or {other}.")


def _kept(frame: pd.DataFrame, device: str, keep: list[str]) -> pd.DataFrame:
    """Row number, device and the columns to keep."""
    names = [str(name) for name in frame.columns]
    wanted = names if keep == [ALL] and ALL not in names else keep
    strange = [name for name in wanted if name not in names]
    if strange:
        raise InputError(
            f"--keep: the table has no {named(strange, 'column')}. Its columns: {some(names, 12)}."
        )
    more = [name for name in wanted if name != device]
    out = frame[[device, *more]].copy()
    out.insert(0, unused("row", out.columns), np.arange(1, len(frame) + 1))
    return out


def unused(name: str, taken: Any) -> str:
    """A column name that is not taken yet.

    >>> unused("row", ["who"]), unused("row", ["row"])
    ('row', 'row_2')
    """
    number, found = 2, name
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    return found


def _add(
    out: pd.DataFrame, model: Any, X: pd.DataFrame, whose: pd.Series, which: Any
) -> None:
    """Predictions as further columns, empty where there are none."""
    X, whose = X[which], whose[which]
    asked = (X, whose) if model.device is None else (X.assign(**{model.device: whose}),)
    name = unused("prediction", out.columns)
    with warnings.catch_warnings():
        # said already, in the words of this command
        warnings.simplefilter("ignore", UnseenWarning)
        if not hasattr(model, "classes_"):
            out[name] = _spread(model.predict(*asked) if which.any() else [], which)
            return
        classes = model.classes_
        chances = (
            model.predict_proba(*asked) if which.any() else np.empty((0, len(classes)))
        )
    out[name] = _spread(classes[chances.argmax(axis=1)] if which.any() else [], which)
    for k, label in enumerate(classes.tolist()):
        out[unused(f"chance_{label}", out.columns)] = _spread(chances[:, k], which)


def _spread(values: Any, which: Any) -> Any:
    """Values at the rows of a mask; nothing elsewhere."""
    if which.all():
        return values
    wide = np.full(len(which), None, dtype=object)
    wide[which] = np.asarray(values).tolist()
    return pd.Series(wide).infer_objects().to_numpy()


def _print(out: pd.DataFrame, verbatim: bool) -> None:
    """As CSV, as it is to a program; on a terminal with nothing in it that moves the cursor."""
    if not sys.stdout.isatty():
        write_csv(out, sys.stdout, verbatim=verbatim)
        return
    text = io.StringIO()
    write_csv(out, text, verbatim=verbatim)
    print(visible(text.getvalue()), end="")


def _write(out: pd.DataFrame, chosen: argparse.Namespace) -> None:
    if chosen.out is None:
        _print(out, chosen.verbatim)
        return
    path = Path(chosen.out)
    if path.suffix == ".parquet":
        need("pyarrow", extra="parquet", why="writing a Parquet file")
        out.to_parquet(path, index=False)
    else:
        write_csv(out, path, verbatim=chosen.verbatim)
    print(f"{many(len(out), 'row')} with predictions in {path}")
