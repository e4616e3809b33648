"""`persfl demo`: bundled real data, from a table to a report."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

from persfl.commands.option_tables import FIT
from persfl.commands.options import defaults
from persfl.commands.table_fit import fit_table
from persfl.datasets import load_housing
from persfl.errors import InputError
from persfl.files import read_whole, refuse_links, write_whole
from persfl.runs.index import INDEX
from persfl.runs.run_folder import Folder

MONTHS = 8  # of each city: too few for a model of its own


def run_demo(chosen: argparse.Namespace) -> int:
    """46 Texan cities, eight months of house prices each."""
    out = Path(chosen.out)
    run = out / "run"
    rows = out / "housing.csv"
    shuffled = load_housing().frame.sample(frac=1.0, random_state=0)
    few = shuffled.groupby("city").head(MONTHS)
    table = few.sort_values(["city", "year", "month"]).to_csv(index=False).encode()
    if out.exists() and any(out.iterdir()) and not _is_demo(out, table):
        raise InputError(
            f"{str(out)!r} is there and was not made by a demo. Choose another --out."
        )
    write_whole(rows, table)
    if not chosen.json:
        _introduce(rows, run)
    asked = argparse.Namespace(**defaults(FIT))
    asked.table = str(rows)
    asked.device = "city"
    asked.label = "log_price"
    asked.out = str(run)
    asked.force = True
    asked.json = chosen.json
    asked.began = chosen.began
    return fit_table(asked)


def _introduce(rows: Path, run: Path) -> None:
    print(
        "46 Texan cities want to predict house prices. Each has eight months of its own and shows"
        " them to nobody."
    )
    print("The same for your own table:\n")
    words = f"{rows} --device city --label log_price --out {run}"
    print(f"  persfl fit {words}\n", flush=True)


def _is_demo(out: Path, table: bytes) -> bool:
    """Whether a demo may replace what is there: its own table, and a run that was fitted to it."""
    refuse_links(out)
    rows = out / "housing.csv"
    run = out / "run"
    if not rows.is_file() or read_whole(rows) != table:
        return False
    if not (run / INDEX).is_file():
        return True
    digest = hashlib.sha256(table).hexdigest()
    return bool(Folder.open(run).spec.get("table_sha256") == digest)
