"""A device's rows, and the table of numbers that they are read from."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from persfl.checks import some
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.federation.category_levels import Levels, encoded
from persfl.federation.plain_settings import settings_from
from persfl.sources.table import read_frame
from persfl.types import Data


class Rows(NamedTuple):
    """A device's rows now, and what its columns are called."""

    columns: Sequence[str]
    data: Data


@dataclass(frozen=True, kw_only=True)
class RowTable:
    """A file, and what its columns are for: a label, perhaps a weight, and features but those to
    drop.
    """

    data: str
    label: str
    drop: tuple[str, ...] = ()
    weight: str | None = None

    @staticmethod
    def of(told: object) -> RowTable:
        """From plain values."""
        return settings_from(RowTable, told, "the table of rows")

    def to_plain(self) -> dict[str, object]:
        """What JSON takes; `of` takes it back."""
        return dataclasses.asdict(self)

    def read(self, levels: Levels | None = None) -> Rows:
        """The rows that are in the file now; `levels` are those of its categories."""
        path = Path(self.data)
        frame = read_frame(path)
        special = [self.label, *([self.weight] if self.weight else [])]
        self._check(frame, special, path.name)
        wanted = frame.drop(columns=list(self.drop), errors="ignore")
        frame = encoded(wanted, self._of_features(levels or {}), path.name)
        out = {*special, *self.drop}
        columns = [str(name) for name in frame.columns if name not in out]
        for name in (*columns, *special):
            if not pd.api.types.is_numeric_dtype(frame[name]):
                raise InputError(
                    f"column {name!r} of {path.name!r} must hold numbers. Declare its levels in"
                    " [categories] of federation.toml and every node.toml, or leave it out with"
                    " --drop."
                )
        if not columns:
            raise InputError(f"{path.name!r} has no feature columns.")
        X = frame[columns].to_numpy(dtype=np.float64)
        y = frame[self.label].to_numpy(dtype=np.float64)
        weight = np.ones(len(y))
        if self.weight:
            weight = frame[self.weight].to_numpy(dtype=np.float64)
        # finite numbers, sensible weights
        Devices.of([(X, y, weight)], ids=[path.name], quiet=True)
        return Rows(columns, Data(X, y, weight))

    def _of_features(self, levels: Levels) -> Levels:
        """Labels and weights are numbers, whatever is declared of a column of that name."""
        apart = (self.label, self.weight)
        return {name: levels[name] for name in levels if name not in apart}

    def _check(self, frame: pd.DataFrame, special: Sequence[str], name: str) -> None:
        """Stop where a column that was named is not there."""
        there = [str(column) for column in frame.columns]
        absent = [one for one in (*special, *self.drop) if one not in frame.columns]
        if not absent:
            return
        near = difflib.get_close_matches(absent[0], there, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"It has {some(there, 5)}."
        raise InputError(f"{name!r} has no column {absent[0]!r}. {hint}")
