"""What commands that read a run need of its table, and of the files that they write: few imports,
since `persfl predict` needs no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from numpy.typing import NDArray

from persfl.checks import named
from persfl.errors import InputError
from persfl.sources.table import read_frame


def read_like_fit(
    path: Path, spec: Mapping[str, Any], also: Sequence[str] = ()
) -> pd.DataFrame:
    """A table, read as the one of the fit was."""
    frame = read_frame(
        path,
        separator=spec["separator"],
        decimal=spec["decimal"],
        thousands=spec.get("thousands"),
        text=spec["device"],
    )
    needed = [spec["device"], *spec["features"], *also]
    absent = [name for name in needed if name not in frame.columns]
    if absent:
        raise InputError(
            f"{path.name!r} has no {named(absent, 'column')}, which the run was fitted with."
        )
    return frame


def model_ids(whose: pd.Series, devices: NDArray[Any]) -> pd.Series:
    """Whose row it is, by the ids that models have: a run saved from Python may have numbers."""
    known = {str(name): name for name in devices.tolist()}
    return whose.map(lambda name: known.get(name, name), na_action="ignore")


def check_out(
    out: str | None, *endings: str, table: str, option: str = "--out"
) -> None:
    """Stop before the work, not after it, where its result could not be written."""
    if out is None:
        return
    path = Path(out)
    if path.resolve() == Path(table).resolve():
        raise InputError(f"{option} {out!r} is the table itself. Choose another file.")
    if path.suffix not in endings:
        raise InputError(
            f"{option} must end in {' or '.join(endings)}. Got {path.name!r}."
        )
    if not path.resolve().parent.is_dir():
        raise InputError(
            f"there is no folder {str(path.parent)!r} to write {path.name!r} into."
        )
