"""How long the front door takes, and how much memory; each line beside what it may take.

    python benchmarks/front.py            fleets of 1,000 devices, the demo, --help
    python benchmarks/front.py --million  also a million rows of 10,000 devices
    python benchmarks/front.py --quick    small fleets, no demo: shows that it works
    python benchmarks/front.py --folder   --help, the demo, and what reads its run; no fleets

Times are of whole commands, imports included, on however many cores there are; limits are of the
processor's time. What reads a run is run once before: modules are then compiled, as pip leaves
them. Peak memory is the command's largest resident size.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd


def table(path: Path, devices: int, rows: int, features: int) -> Path:
    """Three kinds of devices with linear labels and noise, as a Parquet file."""
    generator = np.random.default_rng(0)
    kinds = generator.normal(size=(3, features))
    whose = np.repeat(np.arange(devices), rows)
    X = generator.normal(size=(len(whose), features))
    y = (X * kinds[whose % 3]).sum(axis=1) + 0.5 * generator.normal(size=len(whose))
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(features)])
    frame.insert(0, "device", whose)
    frame["y"] = y
    frame.to_parquet(path)
    return path


def started(*words: str, cwd: Path) -> subprocess.Popen[bytes]:
    """A command of persfl; Python may keep what it compiles, as it does unless told otherwise."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONDONTWRITEBYTECODE"
    }
    return subprocess.Popen(
        [sys.executable, "-m", "persfl", *words],
        cwd=cwd,
        env=kept,
        stdout=subprocess.DEVNULL,
    )


def timed(what: str, limit: float | None, *words: str, cwd: Path) -> None:
    """Run a command and print its seconds, those of the processor, and peak memory."""
    begin = time.perf_counter()
    process = started(*words, cwd=cwd)
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{what} failed with {process.returncode}")
    allowed = "" if limit is None else f" (may take {limit:g} s)"
    cpu = used.ru_utime + used.ru_stime
    memory = f"peak {used.ru_maxrss / 2**20:.2f} GiB"
    print(f"{what}: {seconds:.1f} s, CPU {cpu:.2f} s{allowed}, {memory}", flush=True)


def read_run(run: str, rows: str, cwd: Path) -> None:
    """What reads a run that is over."""
    for words in (("helpers", run), ("predict", run, rows)):
        started(*words, cwd=cwd).wait()
        timed(f"persfl {words[0]}", 1, *words, cwd=cwd)


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cwd = Path(folder)
        timed("persfl --help", 0.1, "--help", cwd=cwd)
        if not chosen.quick:
            # The first one may compile kernels, which later ones find.
            timed("persfl demo", None, "demo", cwd=cwd)
            timed("persfl demo once more", 10, "demo", cwd=cwd)
            read_run("persfl-demo/run", "persfl-demo/housing.csv", cwd)
        if chosen.folder:
            return
        n = 30 if chosen.quick else 1000
        table(
            cwd / "few.parquet",
            n,
            10 if chosen.quick else 30,
            3 if chosen.quick else 10,
        )
        words: tuple[str, ...] = (
            "fit",
            "few.parquet",
            "--device",
            "device",
            "--label",
            "y",
            "--no-report",
            "--out",
            "default",
        )
        words += ("--trials", "1", "--budget", "40") if chosen.quick else ()
        timed(
            f"fit of {n:,} devices, the default"
            + (" (30 rows, 10 features)" if n == 1000 else ""),
            120,
            *words,
            cwd=cwd,
        )
        if chosen.quick:
            read_run("default", "few.parquet", cwd)
        table(
            cwd / "rows.parquet",
            n,
            20 if chosen.quick else 100,
            5 if chosen.quick else 20,
        )
        words = (
            "fit",
            "rows.parquet",
            "--device",
            "device",
            "--label",
            "y",
            "--method",
            "paper",
            "--rounds",
            "5" if chosen.quick else "100",
        )
        timed(
            f"fit of {n:,} devices, the paper's rule",
            60,
            *words,
            "--no-report",
            "--out",
            "run",
            cwd=cwd,
        )
        timed(f"report of {n:,} devices", 10, "report", "run", cwd=cwd)
        print(
            f"report.html: {(cwd / 'run' / 'report.html').stat().st_size / 1e6:.1f} MB (may have 5)"
        )
        if chosen.million:
            table(cwd / "million.parquet", 10_000, 100, 10)
            timed(
                "fit of 1,000,000 rows, 10,000 devices, with report",
                None,
                "fit",
                "million.parquet",
                "--device",
                "device",
                "--label",
                "y",
                "--out",
                "million",
                cwd=cwd,
            )
            print(
                f"report.html: {(cwd / 'million' / 'report.html').stat().st_size / 1e6:.1f} MB (may"
                " have 5)"
            )


if __name__ == "__main__":
    main()
