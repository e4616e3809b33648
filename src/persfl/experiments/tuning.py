"""Choosing settings: every combination of a series' grid is run, on seeds of its own, and the one that ends best is kept.

chosen = argmin over the grid of the mean over runs of the error after the last round
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from persfl.errors import InputError
from persfl.experiments.runner import Result
from persfl.experiments.spec import Spec


@dataclass(frozen=True)
class Chosen:
    """What was chosen for a series: the values, how they ended, and whether one lies at an end of its list."""

    series: str
    values: dict[str, Any]
    error: float
    edge: tuple[str, ...]


def spread(spec: Spec) -> Spec:
    """Every combination of every series' grid as a series of its own.

    >>> from persfl.experiments import load_spec
    >>> [series.name for series in spread(load_spec("networks/digits-mlp")).series][:2]
    ["paper's rule, 1 cluster | step_size=0.03", "paper's rule, 1 cluster | step_size=0.1"]
    """
    lines = []
    for series in spec.series:
        for values in _combinations(series.grid):
            name = f"{series.name} | " + ", ".join(f"{key}={value}" for key, value in values.items())
            lines.append(replace(series, name=name, settings=replace(series.settings, **values), reference=None, grid={}))
    if len(lines) == len(spec.series):
        raise InputError(f"{spec.name}: there is nothing to choose. Give a series a grid, as in grid = {{step_size = [0.1, 1.0]}}.")
    return replace(spec, series=tuple(lines))


def settled(spec: Spec, result: Result) -> tuple[Spec, list[Chosen]]:
    """The spec with the best combination of every series' grid, by the result of `spread(spec)`; of equals the first."""
    ends = iter(curves[:, -1].mean() for curves in result.curves.values())
    lines, found = [], []
    for series in spec.series:
        tried = [(float(next(ends)), values) for values in _combinations(series.grid)]
        error, values = tried[int(np.argmin([error for error, _ in tried]))]
        lines.append(replace(series, settings=replace(series.settings, **values)))
        edge = tuple(key for key, value in values.items() if len(series.grid[key]) > 2 and value in _ends(series.grid[key]))
        found.append(Chosen(series.name, values, error, edge))
    example = result.spec.series[0].settings
    how = f"seed {result.seed}, {result.runs} runs, {example.n} devices, {example.rounds} rounds"
    return replace(spec, series=tuple(lines), tuned=how), found


def _ends(values: Any) -> tuple[Any, Any]:
    return min(values), max(values)


def _combinations(grid: Any) -> list[dict[str, Any]]:
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
