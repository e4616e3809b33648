"""A table on the command line: which of its columns are features, labels, devices, weights."""

from __future__ import annotations

import argparse
import difflib
import warnings
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_float_dtype, is_integer_dtype
from pandas.api.types import is_numeric_dtype as is_number

from persfl.checks import named, some, those
from persfl.column_checks import refuse_missing, refuse_numbers
from persfl.errors import InputError
from persfl.number_marks import marks_in
from persfl.sources.table import device_codes, read_frame, refuse_endless
from persfl.types import Array

MOST_CLASSES = 1000
# whole numbers of so few kinds may be classes: the person is told how they were taken
FEW_KINDS = 20


@dataclass(frozen=True, eq=False)
class TableRows:
    """Rows to fit to: features, labels, whose row it is."""

    path: Path
    X: pd.DataFrame
    y: pd.Series
    devices: pd.Series
    weight: Array | None
    groups: dict[Hashable, str] | None  # of devices
    task: str
    aside: pd.DataFrame  # columns that are no features, nor anything else
    remarks: list[str]  # what the person should know of how the table was taken

    @property
    def features(self) -> list[str]:
        return [str(name) for name in self.X.columns]


def read_rows(chosen: argparse.Namespace) -> TableRows:
    """The table that the options describe, or the sentence that says what is wrong with it."""
    path = Path(chosen.table)
    frame, marks = _frame(path, chosen)
    X = frame[_feature_columns(frame, chosen)]
    y = frame[chosen.label]
    devices = frame[chosen.device]
    gone = int(y.isna().sum())
    if gone:
        raise InputError(
            f"{gone} of {len(frame)} rows have no label in column {chosen.label!r}. Drop those"
            " rows."
        )
    device_codes(devices, len(frame), where=f"column {chosen.device!r}")
    refuse_endless(frame[[*X.columns, chosen.label]], path)
    weight = _weights(frame[chosen.weight]) if chosen.weight else None
    groups = _groups(frame, chosen) if chosen.group else None
    task, remark = _task(y, chosen.task, chosen.label)
    if task == "classification" and is_float_dtype(y) and (y % 1 != 0).any():
        # names of classes, which scikit-learn would take for measurements
        y = y.map(str)
    remarks = [text for text in (marks, remark, _counting(X)) if text]
    aside = frame[_aside(frame, chosen, X)]
    return TableRows(path, X, y, devices, weight, groups, task, aside, remarks)


def _frame(path: Path, chosen: argparse.Namespace) -> tuple[pd.DataFrame, str]:
    """The table, and what to say where marks inside numbers were found in it.

    They are options from then on: tables to predict are read alike.
    """

    def read() -> pd.DataFrame:
        return read_frame(
            path,
            separator=chosen.separator,
            decimal=chosen.decimal,
            thousands=chosen.thousands,
            text=chosen.device,
        )

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        frame = read()
    told = chosen.thousands is not None or chosen.decimal != "."
    others = frame.drop(columns=chosen.device, errors="ignore")
    marks = None if told else marks_in(others)
    if marks is None:
        for one in said:  # read again, the table says the same again
            warnings.warn(one.message, one.category, stacklevel=2)
        return frame, ""
    chosen.decimal, chosen.thousands = marks.decimal, marks.thousands
    return read(), marks.sentence


def _feature_columns(frame: pd.DataFrame, chosen: argparse.Namespace) -> list[str]:
    """The columns to predict from."""
    table = Path(chosen.table).name
    roles = (chosen.device, chosen.label, chosen.weight, chosen.group)
    special = [name for name in roles if name is not None]
    repeats = [name for name in (chosen.blocks, chosen.time) if name is not None]
    asked = [*special, *repeats, *chosen.features, *chosen.drop]
    unknown = [name for name in asked if name not in frame.columns]
    if unknown:
        known = [str(name) for name in frame.columns]
        near = difflib.get_close_matches(unknown[0], known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise InputError(
            f"{table!r} has no {named(unknown, 'column')}. Its columns:"
            f" {some(list(frame.columns), 12)}.{hint}"
        )
    if len(set(special)) < len(special):
        raise InputError(
            "--device, --label, --weight and --group must be different columns. Got"
            f" {', '.join(special)}."
        )
    if not len(frame):
        raise InputError(f"{table!r} has no rows.")
    apart = (*special, *repeats, *chosen.drop)
    others = [name for name in frame.columns if name not in apart]
    features: list[str] = chosen.features or others
    wrong = [name for name in features if name in (chosen.device, chosen.label)]
    if wrong:
        raise InputError(
            f"--features must leave out the device and the label. Got {wrong[0]!r}."
        )
    if not features:
        raise InputError(
            f"{table!r} has no feature columns beside {', '.join(special)}. Add at least one."
        )
    return features


def _aside(
    frame: pd.DataFrame, chosen: argparse.Namespace, X: pd.DataFrame
) -> list[str]:
    """Columns that have no other part to play, and those that say what repeats."""
    others = (chosen.device, chosen.label, chosen.weight, chosen.group, *X.columns)
    said = (chosen.blocks, chosen.time)
    return [name for name in frame.columns if name not in others or name in said]


def _weights(values: pd.Series) -> Array:
    numbers = is_number(values) and not values.isna().any()
    if not numbers or not (values >= 0).all() or np.isinf(values).any():
        raise InputError(
            f"--weight {values.name!r} must hold finite numbers of at least 0 in every row."
        )
    return values.to_numpy(dtype=np.float64)


def _groups(frame: pd.DataFrame, chosen: argparse.Namespace) -> dict[Hashable, str]:
    """The group of every device."""
    refuse_missing(frame[[chosen.group]])
    pairs = frame[[chosen.device, chosen.group]].drop_duplicates()
    device = pairs[chosen.device]
    twice = device[device.duplicated()]
    if len(twice):
        raise InputError(
            "--group must be the same in all rows of a device. Device"
            f" {str(twice.iloc[0])!r} has several."
        )
    names = pairs[chosen.group].astype(str)
    return dict(zip(device.tolist(), names.tolist(), strict=True))


def _task(y: pd.Series, asked: str, name: str) -> tuple[str, str]:
    """What kind of label this is, and what a person should know about that choice."""
    truths = is_bool_dtype(y)
    numbers = is_number(y) and not truths
    kinds = y.nunique()
    if asked == "classification" and numbers and kinds > MOST_CLASSES:
        raise InputError(
            f"column {name!r} has {kinds} different numbers: too many to be classes."
        )
    if asked == "regression" and not numbers:
        raise InputError(
            f"--task regression needs numbers in column {name!r}. Got {y.tolist()[0]!r}."
        )
    if asked != "auto":
        return asked, ""
    if truths:
        return "classification", f"{name} holds True and False, taken as classes."
    if not numbers:
        refuse_numbers(y, name)
        if kinds > MOST_CLASSES or (kinds > FEW_KINDS and kinds > len(y) / 2):
            raise InputError(
                f"column {name!r} has {kinds} different texts such as {y.iloc[0]!r}: too many to be"
                " classes."
            )
        holds = f"{name} holds {kinds} different texts"
        return "classification", f"{holds}, taken as classes."
    if kinds == 2:
        taken = f"{name} has two values, so they are taken as classes"
        return "classification", f"{taken} (--task regression for numbers)."
    if kinds <= FEW_KINDS and (y % 1 == 0).all():
        taken = f"{name} has {kinds} different whole numbers, taken as numbers"
        return "regression", f"{taken} (--task classification for classes)."
    return "regression", ""


def _counting(X: pd.DataFrame) -> str:
    """What to say of columns that only count the rows, as tables from a spreadsheet or from R
    have them.
    """
    counts = np.arange(len(X))
    found = []
    for name in X.columns:
        column = X[name]
        start = X[name].iloc[0]
        counting = is_integer_dtype(column) and start in (0, 1)
        if counting and (column == start + counts).all():
            found.append(name)
    if not found or len(X) < 10:
        return ""
    what = those(found, "only counts", "only count", thing="column")
    be, it = ("is", "it") if len(found) == 1 else ("are", "them")
    drop = f"--drop {','.join(found)}"
    return (
        f"{what} the rows and {be} learned from all the same. Leave {it} out: {drop}."
    )
