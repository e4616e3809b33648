"""Data with other people's numbers, read as they cut it. The files are not part of persfl.

    heart     4 hospitals, disease or not; FLamby's split
    fmi       192 weather stations, tomorrow's highest temperature; the split of the authors' course
    school    139 schools, exam scores; five splits
    har       30 people, 6 activities from 45 simple features of 9 signals; two splits
    femnist   539 writers, 62 characters in 14 x 14 pixels; one split

Every reader gives splits by name: rows to learn from, rows to judge by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from persfl.devices import Devices
from persfl.errors import InputError
from persfl.evaluation.row_order import RowOrder
from persfl.lab.row_splits import Mask, RowSplit
from persfl.sources.table import read_frame
from persfl.sources.unpacking import read_arrays
from persfl.types import Array, IntArray

Splits = dict[str, RowSplit]


class Reader(NamedTuple):
    """Which file a set is in, and what makes splits of it."""

    file: str
    read: Callable[[Path], Splits]


def _dealt(
    X: Array,
    y: Array,
    owner: IntArray,
    learn: Mask,
    *,
    classes: int = 0,
    blocks: IntArray | None = None,
) -> RowSplit:
    """The rows of a split; devices are numbered from 0, whatever they are called."""
    names, owner = np.unique(owner, return_inverse=True)
    ids = range(len(names))
    order = np.argsort(owner, kind="stable")
    mine, judge = (
        Devices.grouped(X[some], y[some], owner[some], ids)
        for some in (order[learn[order]], order[~learn[order]])
    )
    known = None
    if blocks is not None:
        known = RowOrder(blocks=blocks[order[learn[order]]])
    return RowSplit(mine, judge, classes, known)


def _columns(frame: pd.DataFrame, names: Sequence[str], path: Path) -> None:
    """Stop where a table is another than the one that was published."""
    lacking = [name for name in names if name not in frame.columns]
    if lacking:
        raise InputError(f"{path.name!r} has no column {lacking[0]!r}: another file?")


def heart(path: Path) -> Splits:
    """FLamby's split, raw units."""
    frame = read_frame(path)
    _columns(frame, ["hospital", "split", "disease", "num"], path)
    X = frame.drop(columns=["hospital", "split", "disease", "num"]).to_numpy(float)
    owner = np.unique(frame["hospital"], return_inverse=True)[1]
    learn = (frame["split"] == "train").to_numpy()
    y = frame["disease"].to_numpy(float)
    return {"FLamby's split": _dealt(X, y, owner, learn, classes=2)}


def fmi(path: Path) -> Splits:
    """Two dates are hidden at every station, so folds must be of whole dates too."""
    frame = read_frame(path)
    _columns(frame, ["station", "date", "y_tmax", "split"], path)
    X = frame.filter(regex=r"^t(max|min)_\d").to_numpy(float)
    learn = (frame["split"] == "train").to_numpy()
    owner = frame["station"].to_numpy(np.int64)
    y = frame["y_tmax"].to_numpy(float)
    dates = frame["date"].to_numpy(np.int64)
    return {"two dates hidden": _dealt(X, y, owner, learn, blocks=dates)}


def station_places(path: Path) -> Array:
    """(stations, 2) latitude and longitude."""
    frame = read_frame(path)
    places = frame.groupby("station")[["latitude", "longitude"]].first()
    return np.asarray(places.to_numpy(float))


def school(path: Path) -> Splits:
    """Five splits; labels are (score - 1) / 69. The column of ones is left out."""
    frame = read_frame(path)
    _columns(frame, ["school", "score", "split0", "split4"], path)
    X = frame.filter(regex=r"^x\d").to_numpy(float)
    X = X[:, X.std(axis=0) > 0]
    y = (frame["score"].to_numpy(float) - 1) / 69
    owner = frame["school"].to_numpy(np.int64)
    return {
        f"split {k}": _dealt(X, y, owner, (frame[f"split{k}"] == "train").to_numpy())
        for k in range(5)
    }


def _archive(path: Path, *names: str) -> list[Array]:
    """Arrays of a file that somebody made: numbers alone, no objects."""
    content = read_arrays(path, names)
    lacking = [name for name in names if name not in content]
    if lacking:
        raise InputError(f"{path.name!r} has no array {lacking[0]!r}.")
    return [content[name] for name in names]


def har(path: Path) -> Splits:
    """45 features of each window: mean, spread, least, most and mean change of each signal."""
    X, y, owner, test, bout = _archive(path, "X", "y", "person", "test", "test_bout")
    S = X.astype(np.float64).reshape(-1, 9, 128)
    change = np.abs(np.diff(S, axis=2)).mean(axis=2)
    parts = [S.mean(axis=2), S.std(axis=2), S.min(axis=2), S.max(axis=2), change]
    F = np.concatenate(parts, axis=1)
    who = owner.astype(np.int64)
    label = y.astype(np.float64)
    return {
        "windows at random": _dealt(F, label, who, test == 0, classes=6),
        "whole bouts hidden": _dealt(F, label, who, bout == 0, classes=6),
    }


def femnist(path: Path) -> Splits:
    """Ink from 0 to 1 in 14 x 14 pixels."""
    X, y, owner, test = _archive(path, "X", "y", "writer", "test")
    small = X.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4), dtype=np.float64)
    ink = 1.0 - small.reshape(len(X), 196) / 255.0
    label = y.astype(np.float64)
    who = owner.astype(np.int64)
    return {"80 and 20 %": _dealt(ink, label, who, test == 0, classes=62)}


READERS = {
    "heart": Reader("heart.csv", heart),
    "fmi": Reader("fmi.csv", fmi),
    "school": Reader("school.csv", school),
    "har": Reader("har.npz", har),
    "femnist": Reader("femnist539.npz", femnist),
}
