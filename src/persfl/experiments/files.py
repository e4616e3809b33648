"""What a finished figure leaves on disk: curves, summary, the spec it came from, seeds and versions."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import pandas as pd

from persfl.experiments.agreement import verdicts
from persfl.experiments.runner import Result
from persfl.spreadsheets import write_csv


def write(result: Result, out: Path) -> Path:
    """Write a figure's folder (pictures apart) and return it."""
    folder = out / result.spec.name
    folder.mkdir(parents=True, exist_ok=True)
    curves, summary = [], []
    for name, values in result.curves.items():
        first = int(np.isnan(values[0, 0]))
        rounds = np.arange(first, values.shape[1])
        values = values[:, first:]
        runs = np.repeat(np.arange(len(values)), len(rounds))
        curves.append(pd.DataFrame({"series": name, "run": runs, "round": np.tile(rounds, len(values)), "value": values.ravel()}))
        low, middle, high = np.quantile(values, [0.1, 0.5, 0.9], axis=0)
        summary.append(
            pd.DataFrame({"series": name, "round": rounds, "median": middle, "q10": low, "q90": high, "runs": len(values)})
        )
    write_csv(pd.concat(curves), folder / "curves.csv")
    write_csv(pd.concat(summary), folder / "summary.csv")
    (folder / "spec.toml").write_text(result.spec.text, encoding="utf-8")
    about = {
        "seed": result.seed,
        "runs": result.runs,
        "rounds": {series.name: series.settings.rounds for series in result.spec.series},
        "panels": {series.name: series.panel for series in result.spec.series},
        "settings": {series.name: asdict(series.settings) for series in result.spec.series},
        "grids": {series.name: dict(series.grid) for series in result.spec.series},
        "ends": {name: values[:, -1].tolist() for name, values in result.curves.items()},
        "versions": {name: _version(name) for name in ("persfl", "numpy", "scipy", "scikit-learn", "numba", "torch")},
        "python": platform.python_version(),
        "verdicts": {verdict.series: str(verdict) for verdict in verdicts(result)},
    }
    (folder / "run.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return folder


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
