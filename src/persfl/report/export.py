"""Who helps whom for other programs: CSV and GraphML."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from persfl.errors import InputError, need
from persfl.evaluation.who_helps import graph
from persfl.files import write_whole
from persfl.spreadsheets import write_csv
from persfl.terminal import visible


def export(table: pd.DataFrame, path: str | Path, *, verbatim: bool = False) -> Path:
    """Write `helpers_` to a file whose ending says how: .csv (all pairs) or .graphml (adopted
    pairs, peer to device).

    In a .csv, names that a spreadsheet would take for a formula stand behind a ', unless
    `verbatim`.

    >>> import tempfile
    >>> row = {
    ...     "device": "ann",
    ...     "peer": "bob",
    ...     "asked": 9,
    ...     "adopted": 4.0,
    ...     "share": 1.0,
    ...     "reward_mean": 0.5,
    ...     "reward_low": 0.1,
    ...     "reward_high": 0.9,
    ...     "verdict": "helps",
    ... }
    >>> export(
    ...     pd.DataFrame([row]), Path(tempfile.mkdtemp()) / "helpers.csv"
    ... ).read_text().splitlines()[1]
    'ann,bob,9,4.0,1.0,0.5,0.1,0.9,helps'
    """
    path = Path(path)
    if path.suffix == ".csv":
        write_csv(table, path, verbatim=verbatim)
    elif path.suffix == ".graphml":
        nx = need("networkx", extra="report", why="writing GraphML")
        found = graph(table)
        # GraphML has no other ids than text, and readers differ in what they make of numbers. No
        # sign may stand in it that terminals take for a command.
        named = nx.relabel_nodes(found, {node: visible(str(node)) for node in found})
        write_whole(path, lambda file: nx.write_graphml(named, file))
    else:
        raise InputError(f"an export must end in .csv or .graphml. Got {path.name!r}.")
    return path
