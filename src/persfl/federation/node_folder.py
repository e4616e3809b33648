"""A device from a node's folder: rows from its table, policy, ledger and model from files that
stay there.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

from persfl.errors import InputError
from persfl.federation.category_levels import Levels, level_columns
from persfl.federation.device import Device
from persfl.federation.federation_folder import NODE, read_node
from persfl.federation.ledger import Ledger
from persfl.federation.model_store import Shelf
from persfl.federation.node_family import NodeFamily
from persfl.federation.policy import Policy
from persfl.federation.privacy_settings import PrivacySettings
from persfl.federation.row_by_row import read_row_by_row
from persfl.federation.row_table import Rows, RowTable
from persfl.files import write_whole
from persfl.formats import reading

TABLE = "table.json"
LEDGER = "ledger.sqlite"
MODELS = "models"
_LOG = 2**20  # bytes of errors that are kept


def use_table(
    folder: Path,
    data: Path,
    *,
    label: str,
    drop: list[str],
    weight: str | None,
    moved: bool = False,
) -> Rows:
    """Say which table this node's rows are in; it is read once to see that it can be used.

    `moved` if the owner says that the folder's past is their own, from another machine.
    """
    _own_ledger(folder, moved=moved).close()
    table = RowTable(
        data=str(data.resolve()), label=label, drop=tuple(drop), weight=weight
    )
    rows = table.read(read_node(folder).categories)
    text = json.dumps(table.to_plain(), indent=1) + "\n"
    write_whole(folder / TABLE, text.encode())
    return rows


def _own_ledger(folder: Path, *, moved: bool = False) -> Ledger:
    """The ledger of a folder, which is begun where nothing is there.

    A past that is not of this machine is refused: limits are counted by it, and rows are dealt by
    its secret.
    """
    past = [name for name in (LEDGER, MODELS) if (folder / name).exists()]
    if past != [MODELS] or moved:
        ledger = Ledger(folder / LEDGER, marked=True)
        if moved:
            ledger.take_over()
        if not ledger.foreign:
            return ledger
        ledger.close()
    raise InputError(
        f"{str(folder / past[0])!r} was not begun on this machine. Whoever made it chose what"
        f" limits count from: remove {' and '.join(map(repr, past))}. Only if the folder is your"
        " own and has moved, add --moved to persfl node, once."
    )


class ChangingTable:
    """Rows that may keep arriving: the table is read again when its file has changed; row by row
    where no row may show in how that goes.
    """

    def __init__(
        self, table: RowTable, levels: Levels | None = None, *, apart: bool = False
    ) -> None:
        self._table = table
        self._levels = levels
        self._apart = apart
        self._seen: tuple[tuple[int, ...], Rows] | None = None

    def __call__(self, r: int) -> Rows:
        stat = Path(self._table.data).stat()
        mark = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if self._seen is None or self._seen[0] != mark:
            self._seen = (mark, self._read())
        return self._seen[1]

    def _read(self) -> Rows:
        if self._apart:
            return read_row_by_row(self._table, self._levels or {})
        return self._table.read(self._levels)


def device_of(folder: Path) -> Device:
    """The device of a node's folder."""
    config = read_node(folder)
    # somebody else may have put in the one, but not both
    if not (folder / TABLE).is_file() or not (folder / LEDGER).is_file():
        raise InputError(
            f"{str(folder)!r} does not know its table yet. Start it with: persfl node --config"
            f" {folder} --data ..."
        )
    with reading(folder / TABLE):
        table = RowTable.of(json.loads((folder / TABLE).read_bytes()))
    ledger = _own_ledger(folder)
    (folder / MODELS).mkdir(mode=0o700, exist_ok=True)
    privacy = node_privacy(folder)
    return Device(
        config.device,
        ChangingTable(table, config.categories, apart=privacy is not None),
        policy=Policy.read(folder / NODE),
        ledger=ledger,
        shelf=Shelf(folder / MODELS),
        log=lambda text: _noted(folder / "errors.log", text),
        privacy=privacy,
        family=NodeFamily.read(folder / NODE),
    )


def node_privacy(folder: Path) -> PrivacySettings | None:
    """How a node's answers are protected; what is 0 or 1 needs no range declared."""
    settings = PrivacySettings.read(folder / NODE)
    if settings is None:
        return None
    columns = level_columns(read_node(folder).categories)
    known = {name: [0, 1] for each in columns.values() for name in each}
    return replace(settings, ranges=known | dict(settings.ranges))


def _noted(path: Path, text: str) -> None:
    """Errors stay here, for the owner to read."""
    if path.is_file() and path.stat().st_size > _LOG:
        path.replace(path.with_suffix(".old"))
    # An error's text may hold private values.
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(handle, "a", encoding="utf-8") as file:
        file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
