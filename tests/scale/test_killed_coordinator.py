"""kill -9 of a coordinator: its workers end with it, and the run goes on to the same result."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from persfl.cli import main
from persfl.sources import clustered_regression

pytest.importorskip("pyarrow")
LONG = 240.0  # seconds that a busy machine may take


def wait_for(what, process) -> None:
    ended = time.monotonic() + LONG
    while not what():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < ended
        time.sleep(0.02)


def children_of(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in listed.read_text().split()]


def alive(pid: int) -> bool:
    try:
        about = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return about.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.slow  # real processes, started twice
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    ("method", "devices", "begun"),
    [
        (["--set", "panel=60", "--set", "trees=false"], 400, "made.jsonl"),
        (["--method", "paper", "--set", "rounds=40"], 60, "rounds-final.npz"),
    ],
)
def test_a_killed_coordinator_resumes(tmp_path, monkeypatch, method, devices, begun):
    """It is killed once there is a file that it goes on from."""
    monkeypatch.setenv("PERSFL_SAVE_SECONDS", "0")
    made = clustered_regression(
        n=devices, clusters=3, rows=8, features=3, noise=0.4, seed=2
    )
    table = pd.DataFrame(made.X, columns=list("abc")).assign(kwh=made.y)
    table["meter"] = made.owner
    table.to_parquet(tmp_path / "x.parquet", index=False)
    source = str(tmp_path / "x.parquet")
    shards = str(tmp_path / "shards")
    words = [
        "shard",
        source,
        "--device",
        "meter",
        "--out",
        shards,
        "--shards",
        "40" if devices > 100 else "3",
    ]
    assert main(words) == 0
    fit = ["fit", shards, "--device", "meter", "--label", "kwh", "--no-report"]
    fit += [*method, "--engine", "processes"]
    out = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "persfl", *fit, "--jobs", "2", "--out", str(out)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    wait_for((out / begun).exists, process)
    workers = children_of(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stderr.close()
    assert not (out / "sharded.json").read_text().count('"offers"')
    assert main([*fit, "--out", str(tmp_path / "whole")]) == 0
    ended = time.monotonic() + LONG
    while any(map(alive, workers)) and time.monotonic() < ended:
        time.sleep(0.1)
    assert not any(map(alive, workers))
    assert main([*fit, "--out", str(out), "--resume"]) == 0
    both = [models_of(place) for place in (out, tmp_path / "whole")]
    np.testing.assert_allclose(both[0], both[1], rtol=1e-12, atol=1e-12)


def models_of(run: Path) -> np.ndarray:
    parts = sorted((run / "models").iterdir())
    return pd.concat([pd.read_parquet(part) for part in parts]).to_numpy(dtype=float)
