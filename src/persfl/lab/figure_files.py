"""What a finished figure leaves on disk: curves, summary, the spec it came from, versions."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from persfl.lab.agreement import verdicts
from persfl.lab.figure_runs import Result
from persfl.spreadsheets import write_csv

PACKAGES = ("persfl", "numpy", "scipy", "scikit-learn", "numba", "torch")


def write_figure(result: Result, out: Path) -> Path:
    """Write a figure's folder (pictures apart) and return it."""
    folder = out / result.spec.name
    folder.mkdir(parents=True, exist_ok=True)
    curves = []
    summary = []
    for name, values in result.curves.items():
        first = int(np.isnan(values[0, 0]))
        shown = values[:, first:]
        rounds = np.arange(first, values.shape[1])
        run = np.repeat(np.arange(len(shown)), len(rounds))
        long = {
            "run": run,
            "round": np.tile(rounds, len(shown)),
            "value": shown.ravel(),
        }
        curves.append(pd.DataFrame({"series": name} | long))
        low, middle, high = np.quantile(shown, [0.1, 0.5, 0.9], axis=0)
        short = {
            "round": rounds,
            "median": middle,
            "q10": low,
            "q90": high,
            "runs": len(shown),
        }
        summary.append(pd.DataFrame({"series": name} | short))
    write_csv(pd.concat(curves), folder / "curves.csv")
    write_csv(pd.concat(summary), folder / "summary.csv")
    (folder / "spec.toml").write_text(result.spec.text, encoding="utf-8")
    text = json.dumps(_about(result), indent=1) + "\n"
    (folder / "run.json").write_text(text, encoding="utf-8")
    return folder


def _about(result: Result) -> dict[str, Any]:
    """What run.json says."""
    series = result.spec.series
    return {
        "seed": result.seed,
        "runs": result.runs,
        "rounds": {line.name: line.settings.rounds for line in series},
        "panels": {line.name: line.panel for line in series},
        "settings": {line.name: asdict(line.settings) for line in series},
        "grids": {line.name: dict(line.grid) for line in series},
        "ends": {
            name: values[:, -1].tolist() for name, values in result.curves.items()
        },
        "versions": {name: _version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "verdicts": {verdict.series: str(verdict) for verdict in verdicts(result)},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
