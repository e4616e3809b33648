"""A device from a node's folder: rows from its table, policy, ledger and model from files that
stay there.
"""

from __future__ import annotations

import difflib
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from persfl.checks import some
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.federation.device import Device, Rows
from persfl.federation.federation_folder import NODE, node_told
from persfl.federation.ledger import Ledger
from persfl.federation.model_store import Shelf
from persfl.federation.policy import Policy
from persfl.files import write_whole
from persfl.sources.table import read_frame
from persfl.types import Data

TABLE, LEDGER, MODELS = "table.json", "ledger.sqlite", "models"
_LOG = 2**20  # bytes of errors that are kept


def use_table(
    folder: Path, data: Path, *, label: str, drop: list[str], weight: str | None
) -> Rows:
    """Say which table this node's rows are in; it is read once to see that it can be used."""
    told = {"data": str(data.resolve()), "label": label, "drop": drop, "weight": weight}
    _refuse_used(folder)
    rows = read_rows(told)
    write_whole(folder / TABLE, (json.dumps(told, indent=1) + "\n").encode())
    return rows


def _refuse_used(folder: Path) -> None:
    """Stop where a folder has a past though it is new here: limits would be counted by it."""
    past = [name for name in (LEDGER, MODELS) if (folder / name).exists()]
    if past and not (folder / TABLE).exists():
        what = "Whoever made it chose what it says: remove it."
        raise InputError(
            f"{str(folder / past[0])!r} is there, where no table was ever used. {what}"
        )


def read_rows(told: dict[str, Any]) -> Rows:
    """A table of numbers as rows."""
    path = Path(told["data"])
    frame = read_frame(path)
    special = [told["label"], *([told["weight"]] if told["weight"] else [])]
    absent = [name for name in [*special, *told["drop"]] if name not in frame.columns]
    if absent:
        near = difflib.get_close_matches(
            absent[0], [str(name) for name in frame.columns], n=1
        )
        hint = (
            f" Did you mean {near[0]!r}?"
            if near
            else f" It has {some(list(map(str, frame.columns)), 5)}."
        )
        raise InputError(f"{path.name!r} has no column {absent[0]!r}.{hint}")
    columns = [
        str(name)
        for name in frame.columns
        if name not in special and name not in told["drop"]
    ]
    text = [
        name
        for name in [*columns, *special]
        if not pd.api.types.is_numeric_dtype(frame[name])
    ]
    if text:
        raise InputError(
            f"column {text[0]!r} of {path.name!r} must hold numbers. Encode it, or leave it out"
            " with --drop."
        )
    if not columns:
        raise InputError(f"{path.name!r} has no feature columns.")
    X, y = (
        frame[columns].to_numpy(dtype=np.float64),
        frame[told["label"]].to_numpy(dtype=np.float64),
    )
    weight = (
        frame[told["weight"]].to_numpy(dtype=np.float64)
        if told["weight"]
        else np.ones(len(y))
    )
    # finite numbers, sensible weights
    Devices.of([(X, y, weight)], ids=[path.name], quiet=True)
    return Rows(columns, Data(X, y, weight))


def device_of(folder: Path) -> Device:
    """The device of a node's folder."""
    told = node_told(folder)
    if not (folder / TABLE).is_file():
        raise InputError(
            f"{str(folder)!r} does not know its table yet. Start it with: persfl node --config"
            f" {folder} --data ..."
        )
    table = json.loads((folder / TABLE).read_bytes())
    seen: dict[str, Any] = {}

    def rows(r: int) -> Rows:
        """Rows may keep arriving: the table is read again when its file has changed."""
        stat = Path(table["data"]).stat()
        mark = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if seen.get("mark") != mark:
            seen["rows"], seen["mark"] = read_rows(table), mark
        return seen["rows"]  # type: ignore[no-any-return]

    (folder / MODELS).mkdir(mode=0o700, exist_ok=True)
    return Device(
        told["device"],
        rows,
        policy=Policy.read(folder / NODE),
        ledger=Ledger(folder / LEDGER),
        shelf=Shelf(folder / MODELS),
        log=lambda text: _noted(folder / "errors.log", text),
    )


def _noted(path: Path, text: str) -> None:
    """Errors stay here, for the owner to read."""
    if path.is_file() and path.stat().st_size > _LOG:
        path.replace(path.with_suffix(".old"))
    # An error's text may hold private values.
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(handle, "a") as file:
        file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
