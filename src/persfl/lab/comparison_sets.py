"""Data sets by name: two that come with persfl, five that are made up, and tables of the user's."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from persfl.datasets import load_flights, load_housing
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.evaluation.row_order import RowOrder
from persfl.evaluation.split import taken
from persfl.files import fingerprint
from persfl.lab.row_splits import RowSplit, few_rows, held_back, next_rows
from persfl.seeds import stream
from persfl.sources import from_table, read_archive, shifted_digits, varied_regression
from persfl.sources.shifted import SHIFTS
from persfl.sources.table import read_frame

# a loader, and how many classes there are
BUNDLED = {"txhousing": (load_housing, 0), "flights": (load_flights, 3)}
KNOWN = (*BUNDLED, "linear", *SHIFTS)


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """Where rows come from and how many of them a device learns from.

    `folder` is where files are, and no part of what a set is.

    >>> dealt = DataSet(name="flights", few=10).dealt(seed=0)
    >>> dealt.learn, dealt.classes
    (Devices(75 devices, 750 rows, 5 features), 3)
    >>> dealt.judge
    Devices(75 devices, 2250 rows, 5 features)
    """

    name: str
    few: int  # rows of each device to learn from; 0: one of every class
    # a .csv or .npz file in the folder; without one the name says what it is
    file: str = ""
    device: str = ""  # of a .csv: the column that says whose row it is
    label: str = ""  # of a .csv: what to predict
    features: tuple[str, ...] = ()  # of a .csv: from what (default: all other columns)
    squares: bool = False  # the squares of the features too
    log: bool = False  # predict the label's logarithm
    # numbers in the label column are names of classes, as texts are anyway
    classes: bool = False
    # of the order of time: so many rows after those learned from judge; 0: random others
    ahead: int = 0
    bundled: str = ""  # which of the known sets, where the name is another
    devices: int = 0  # at most so many, drawn anew for every seed; 0: all
    cost: float = 1.0  # rough seconds of one core, to start with the longest
    folder: str = ""

    @property
    def settings(self) -> dict[str, Any]:
        """All that a result depends on."""
        return {
            key: value
            for key, value in asdict(self).items()
            if key not in ("cost", "folder")
        }

    @property
    def missing(self) -> bool:
        """Whether its file is not there."""
        return bool(self.file) and not (
            self.folder and (Path(self.folder) / self.file).is_file()
        )

    @property
    def content(self) -> str:
        """The SHA-256 of its file: other rows under the same name are another set."""
        return fingerprint(Path(self.folder) / self.file) if self.file else ""

    def dealt(self, seed: int) -> RowSplit:
        """The rows of this seed."""
        devices, classes = self.rows(seed)
        if 0 < self.devices < len(devices):
            draw = stream(seed, "devices").generator()
            which = np.zeros(len(devices), dtype=bool)
            which[draw.choice(len(devices), self.devices, replace=False)] = True
            devices = taken(devices, which)
        if self.ahead:
            cut = stream(seed, "cut").generator().random()
            return next_rows(devices, self.few, self.ahead, cut, classes=classes)
        return few_rows(devices, self.few, seed=seed, classes=classes)

    def rows(self, seed: int) -> tuple[Devices, int]:
        """All rows, and how many classes there are."""
        if self.file:
            return self._read(Path(self.folder) / self.file)
        known = self.bundled or self.name
        if known in BUNDLED:
            load, classes = BUNDLED[known]
            frame = load().frame
            return from_table(
                frame, device=frame.columns[0], label=frame.columns[-1]
            ), classes
        if known in SHIFTS:
            return shifted_digits(known, seed=seed), 10
        return varied_regression(seed=seed), 0

    def _read(self, path: Path) -> tuple[Devices, int]:
        if path.suffix == ".npz":
            return read_archive(path)
        if not self.device or not self.label:
            need = "a .csv file needs device and label, the names of two of its columns"
            raise InputError(f"{self.name}: {need}.")
        frame = read_frame(path)
        for name in (self.device, self.label, *self.features):
            if name not in frame.columns:
                known = ", ".join(map(str, frame.columns))
                raise InputError(
                    f"{path.name!r} has no column {name!r}. Its columns: {known}."
                )
        named = (self.device, self.label)
        features = list(self.features) or [
            name for name in frame.columns if name not in named
        ]
        table = frame[[self.device, *features]]
        if self.squares:
            table = pd.concat(
                [table, (frame[features] ** 2).add_suffix(" squared")], axis=1
            )
        label = frame[self.label]
        classes = 0
        if self.classes or not pd.api.types.is_numeric_dtype(label):
            codes, names = pd.factorize(label, sort=True)
            label = pd.Series(codes, index=frame.index)
            classes = len(names)
        table = table.assign(**{self.label: np.log(label) if self.log else label})
        return from_table(table, device=self.device, label=self.label), classes


@dataclass(frozen=True, eq=False)
class Table:
    """A user's own rows: `few` of each device to learn from, or all but a share."""

    name: str
    devices: Devices
    classes: int
    few: int | None = None
    share: float = 0.25
    order: RowOrder = field(default_factory=RowOrder)  # what repeats in the rows
    cost: float = 1.0
    content: str = ""  # it is read anew by every command

    @property
    def settings(self) -> dict[str, Any]:
        """How rows are dealt."""
        order = self.order
        far = None if np.isinf(order.horizon) else order.horizon
        return {
            "name": self.name,
            "few": self.few,
            "share": self.share,
            "ordered": order.ordered,
            "blocks": order.blocks is not None,
            "time": order.time is not None,
            "gap": order.gap,
            "horizon": far,
        }

    def dealt(self, seed: int) -> RowSplit:
        """The rows of this seed."""
        how: dict[str, Any] = {
            "seed": seed,
            "classes": self.classes,
            "order": self.order,
        }
        if self.few is None:
            return held_back(self.devices, self.share, **how)
        return few_rows(self.devices, self.few, share=self.share, **how)
