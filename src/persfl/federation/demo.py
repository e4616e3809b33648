"""A whole federation on one machine: folder, SuperLink, proxy, nodes as processes, a run, its
report; then everything is ended.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from persfl.errors import InputError
from persfl.federation.federation_folder import Federation, init
from persfl.federation.launch import launch
from persfl.federation.processes import Process, free_ports, quiet
from persfl.federation.run_plan import RunPlan
from persfl.federation.superlink import Up
from persfl.sources import clustered_regression

# A quarter of the rows, which is held back, is as many as a policy lets be told of.
KINDS = 2
ROWS = 20
FEATURES = 20
NOISE = 0.3
STEPS = 10
MOST = 20


def tables(folder: Path, nodes: int) -> dict[str, Path]:
    """Made-up clinics of two kinds (the paper's generator): a table each, with fewer rows than
    a model has coefficients.
    """
    devices = clustered_regression(
        n=nodes, clusters=KINDS, rows=ROWS, features=FEATURES, noise=NOISE, seed=0
    )
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for i in range(nodes):
        rows = pd.DataFrame(
            devices[i].X, columns=[f"x{j + 1}" for j in range(FEATURES)]
        ).assign(y=devices[i].y)
        found[f"clinic-{i + 1}"] = folder / f"clinic-{i + 1}.csv"
        rows.to_csv(found[f"clinic-{i + 1}"], index=False)
    return found


def start_node(federation: Federation, name: str, data: Path, label: str) -> Process:
    """`persfl node` as a process of its own."""
    folder = federation.path / name
    words = [
        sys.executable,
        "-m",
        "persfl",
        "node",
        "--config",
        str(folder),
        "--data",
        str(data),
        "--label",
        label,
    ]
    return Process(words, env=quiet(folder / "flwr"), log=folder / "node.log")


def demonstrate(
    out: Path,
    *,
    nodes: int,
    rounds: int,
    show: Callable[[str, dict[str, Any]], None],
    finish: Callable[[], None] = lambda: None,
) -> int:
    """The demo; whatever happens, nothing is left running. `finish` is called when the run is
    over and well.
    """

    if out.exists() and any(out.iterdir()):
        raise InputError(f"{str(out)!r} is not empty. Choose another --out.")
    if not 2 <= nodes <= MOST:
        raise InputError(
            f"nodes must be between 2 and {MOST} on one machine. Got {nodes}."
        )
    place = Path(tempfile.mkdtemp(prefix="persfl-federation-"))
    started: list[Process] = []
    try:
        rows = tables(place / "tables", nodes)
        port, inner = free_ports(2)
        federation = init(place / "fed", list(rows), port=port, inner=inner)

        def say(text: str) -> None:
            show("note", {"text": text})

        say(
            f"{nodes} clinics of {KINDS} kinds, {ROWS} rows and {FEATURES} features each, a process"
            " for every clinic; keys are made"
        )
        with Up(federation, say=say):
            say(f"the SuperLink is up behind its proxy on port {port}, TLS on")
            started += [
                start_node(federation, name, data, "y") for name, data in rows.items()
            ]
            plan = RunPlan(
                out=str(out.resolve()),
                members=federation.members,
                devices=tuple(sorted(federation.members)),
                rounds=rounds,
                peers=nodes - 1,
                steps=STEPS,
                units="shared",
                patience=120.0,
                gather=90.0,
            )
            try:
                code = launch(federation, plan, resume=False, show=show)
            finally:
                end(started)
        if code == 0:
            finish()
        return code
    finally:
        end(started)
        shutil.rmtree(place, ignore_errors=True)


def end(started: list[Process]) -> None:
    """End processes, all at once."""
    for child in started:
        child.ask_to_stop()
    while started:
        started.pop().stop()
