"""What a finished figure leaves on disk: curves, summary, the spec it came from, versions."""

from __future__ import annotations

import json
import platform
import re
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from persfl.errors import InputError
from persfl.files import read_whole, refuse_links, write_whole
from persfl.lab.agreement import verdicts
from persfl.spreadsheets import write_csv

if TYPE_CHECKING:
    from persfl.lab.figure_runs import Result

ABOUT = "run.json"
PACKAGES = ("persfl", "numpy", "scipy", "scikit-learn", "numba", "torch")
# what experiments leave in their folder, beside the curves of single runs
_FIGURE = ("curves.csv", "summary.csv", "spec.toml", "figure.png", "figure.svg")
_WRITTEN = (*_FIGURE, "comparison.png", "results.json", "page.md", ABOUT)
_KEPT = re.compile(r"[0-9a-f]{20}\.npy")


def results_folder(out: Path, name: str) -> Path:
    """Where the results of a spec go: no link leads elsewhere from there, and it is no other's.

    >>> import tempfile
    >>> out = Path(tempfile.mkdtemp())
    >>> (out / "fig5").symlink_to("/")
    >>> results_folder(out, "fig5")
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: '.../fig5' is a link. Results go into folders of their own: ...
    """
    folder = out / name
    if folder.is_symlink():
        what = (
            "Results go into folders of their own: remove it, or choose another --out."
        )
        raise InputError(f"{str(folder)!r} is a link. {what}")
    for place in (folder, folder / "runs"):
        if place.is_dir():
            refuse_links(place)
    if not _has_results(folder):
        strange = [name for name in _WRITTEN if (folder / name).exists()]
        if strange:
            what = f"{strange[0]!r}, which results of an experiment would overwrite"
            raise InputError(
                f"{str(folder)!r} holds something else, {what}. Choose another --out."
            )
    return folder


def _has_results(folder: Path) -> bool:
    """Whether an experiment was here before: one that is cut leaves curves of single runs, the
    cells of a comparison, or the sets of published numbers.
    """
    if (folder / ABOUT).exists():
        return figure_told(folder / ABOUT) is not None
    runs = folder / "runs"
    if runs.is_dir() and any(_KEPT.fullmatch(path.name) for path in runs.iterdir()):
        return True
    told = _told(folder / "results.json")
    return isinstance(told.get("cells"), list) or isinstance(told.get("sets"), dict)


def figure_told(path: Path) -> dict[str, Any] | None:
    """What the run.json of a figure says; None where it is of another kind, as of `persfl fit`."""
    told = _told(path)
    if not {"seed", "runs", "verdicts"} <= set(told):
        return None
    return told if isinstance(told["verdicts"], dict) else None


def _told(path: Path) -> dict[str, Any]:
    """The words of a file by name; none where it is absent or of another kind."""
    try:
        told = json.loads(read_whole(path))
    except (InputError, OSError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def write_figure(result: Result, out: Path) -> Path:
    """Write a figure's folder (pictures apart) and return it."""
    folder = results_folder(out, result.spec.name)
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
    write_whole(folder / "spec.toml", result.spec.text.encode())
    text = json.dumps(_about(result), indent=1) + "\n"
    write_whole(folder / ABOUT, text.encode())
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
