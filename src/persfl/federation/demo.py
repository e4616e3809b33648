"""A whole federation on one machine: folder, SuperLink, proxy, nodes as processes, a run, its report; then everything is ended."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from persfl.commands.tables import write_reports
from persfl.datasets import load_housing
from persfl.errors import InputError
from persfl.federation.folder import Federation, init
from persfl.federation.launching import launch
from persfl.federation.link import Up
from persfl.federation.processes import Process, free_ports, quiet

CITIES = ("Austin", "Dallas", "Fort Worth", "Houston", "San Antonio", "Corpus Christi", "El Paso", "Lubbock", "Waco", "Tyler")
ROWS = 40


def tables(folder: Path, nodes: int) -> dict[str, Path]:
    """House prices of some Texan cities: a table each, under the city's name."""
    frame = load_housing().frame
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for city in CITIES[:nodes]:
        rows = frame[frame["city"] == city].drop(columns="city").sample(ROWS, random_state=0).sort_values(["year", "month"])
        name = city.lower().replace(" ", "-")
        rows.to_csv(folder / f"{name}.csv", index=False)
        found[name] = folder / f"{name}.csv"
    return found


def start_node(federation: Federation, name: str, data: Path, label: str) -> Process:
    """`persfl node` as a process of its own."""
    folder = federation.path / name
    words = [sys.executable, "-m", "persfl", "node", "--config", str(folder), "--data", str(data), "--label", label]
    return Process(words, env=quiet(folder / "flwr"), log=folder / "node.log")


def demonstrate(out: Path, *, nodes: int, rounds: int, show: Callable[[str, dict[str, Any]], None]) -> int:
    """The demo; whatever happens, nothing is left running."""
    if out.exists() and any(out.iterdir()):
        raise InputError(f"{str(out)!r} is not empty. Choose another --out.")
    if not 2 <= nodes <= len(CITIES):
        raise InputError(f"nodes must be between 2 and {len(CITIES)}. Got {nodes}.")
    place = Path(tempfile.mkdtemp(prefix="persfl-federation-"))
    started: list[Process] = []
    try:
        rows = tables(place / "tables", nodes)
        port, inner = free_ports(2)
        federation = init(place / "fed", list(rows), port=port, inner=inner)

        def say(text: str) -> None:
            show("note", {"text": text})

        say(f"{nodes} cities, {ROWS} months of house prices each, a process for every city; certificates and keys made")
        with Up(federation, say=say):
            say(f"the SuperLink is up behind its proxy on port {port}, TLS on")
            started += [start_node(federation, name, data, "log_price") for name, data in rows.items()]
            plan = {
                "out": str(out.resolve()), "members": federation.members, "devices": sorted(federation.members), "home": None,
                "label": "log_price", "model": "linear", "classes": 0, "settings": {}, "rounds": rounds, "peers": nodes - 1,
                "step_size": "auto", "steps": 1, "batch": None, "units": "shared", "holdout": 0.25, "points": 0, "seed": 0,
                "start": None, "local": None, "deadline": 60.0, "quorum": 0.5, "patience": 120.0, "gather": 90.0, "need": 0,
                "growth": 2.0, "reach": 10.0,
            }  # fmt: skip
            code = launch(federation, plan, resume=False, show=show)
        if code == 0:
            for path in write_reports(out):
                show("report", {"path": str(path), "text": f"Open {path}."})
        return code
    finally:
        for child in started:
            child.stop()
        shutil.rmtree(place, ignore_errors=True)
