"""Tables of meters for tests of fits over shards, their shards, and the models of a run."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pandas as pd

from persfl.scale.executor import InThisProcess
from persfl.scale.local_processes import LocalProcesses
from persfl.scale.shard_reader import TableColumns
from persfl.scale.sharded_fit import ShardedFit, fit_shards
from persfl.scale.sharding import shard_folder
from persfl.sources import clustered_regression

COLUMNS = TableColumns("kwh", ("a", "b", "c"))


def fleet(n: int = 60, bent: bool = False) -> pd.DataFrame:
    made = clustered_regression(n=n, clusters=3, rows=8, features=3, noise=0.4, seed=2)
    table = pd.DataFrame(
        made.X * [1.0, 20.0, 0.1] + [5.0, 0.0, -1.0], columns=list("abc")
    )
    table["kwh"] = 100 + 30 * made.y
    if bent:
        table["kwh"] += 200 * np.sin(3 * made.X[:, 0])
    table["meter"] = [f"m{k:04d}" for k in made.owner]
    return table


def sharded(table: pd.DataFrame, place: Path, shards: int):
    (place / "meters").mkdir(parents=True)
    mixed = table.sample(frac=1.0, random_state=1).sort_index(kind="stable")
    mixed.to_parquet(place / "meters" / "x.parquet", index=False)
    return shard_folder(
        place / "meters", place / "shards", device="meter", shards=shards
    )


def models_of(run) -> pd.DataFrame:
    parts = sorted((run.folder / "models").iterdir())
    return pd.concat([pd.read_parquet(part) for part in parts]).set_index("meter")


def survives_a_kill(
    index, asked: ShardedFit, place: Path, *, stage: str, after: int
) -> None:
    """A worker's process is killed in this stage; another takes its place, and nothing differs."""
    here = fit_shards(index, place / "here", asked, InThisProcess())
    engine = LocalProcesses(2)
    killed = []

    def kill(what: str, done: int, many: int) -> None:
        if what == stage and done == after:
            (process,) = engine._pools[1]._processes.values()
            os.kill(process.pid, signal.SIGKILL)
            killed.append(process.pid)

    run = fit_shards(index, place / "run", asked, engine, say=kill)
    assert len(killed) == 1
    pd.testing.assert_frame_equal(models_of(run), models_of(here))
