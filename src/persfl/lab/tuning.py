"""Choosing settings: every combination of a series' grid is run, on seeds of its own.

The one that ends best is kept:

chosen = argmin over the grid of the mean over runs of the error after the last round
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from persfl.errors import InputError
from persfl.lab.figure_specs import Grid, Spec

if TYPE_CHECKING:
    from persfl.lab.figure_runs import Result


@dataclass(frozen=True)
class Chosen:
    """The values for a series, how they ended, and which lie at an end of their list."""

    series: str
    values: dict[str, Any]
    error: float
    edge: tuple[str, ...]


def grid_spec(spec: Spec) -> Spec:
    """Every combination of every series' grid as a series of its own.

    >>> from persfl.lab.figure_specs import load_spec
    >>> [series.name for series in grid_spec(load_spec("networks/digits-mlp")).series][
    ...     :2
    ... ]
    ["paper's rule, 1 cluster | step_size=0.03", "paper's rule, 1 cluster | step_size=0.1"]
    """
    lines = []
    for series in spec.series:
        for values in _combinations(series.grid):
            words = ", ".join(f"{key}={value}" for key, value in values.items())
            settings = replace(series.settings, **values)
            one = replace(series, name=f"{series.name} | {words}", settings=settings)
            lines.append(replace(one, reference=None, grid={}))
    if len(lines) == len(spec.series):
        what = "Give a series a grid, as in grid = {step_size = [0.1, 1.0]}."
        raise InputError(f"{spec.name}: there is nothing to choose. {what}")
    return replace(spec, series=tuple(lines))


def tuned_spec(spec: Spec, result: Result) -> tuple[Spec, list[Chosen]]:
    """The spec with the best combination of every series' grid; of equals the first.

    `result` is that of `grid_spec(spec)`.
    """
    ends = iter(curves[:, -1].mean() for curves in result.curves.values())
    lines = []
    found = []
    for series in spec.series:
        tried = _combinations(series.grid)
        errors = [float(next(ends)) for _ in tried]
        best = int(np.argmin(errors))
        values = tried[best]
        lines.append(replace(series, settings=replace(series.settings, **values)))
        edge = tuple(key for key in values if _at_an_end(values[key], series.grid[key]))
        found.append(Chosen(series.name, values, errors[best], edge))
    example = result.spec.series[0].settings
    fleet = f"{example.n} devices, {example.rounds} rounds"
    how = f"seed {result.seed}, {result.runs} runs, {fleet}"
    return replace(spec, series=tuple(lines), tuned=how), found


def _at_an_end(value: object, values: Sequence[Any]) -> bool:
    return len(values) > 2 and value in (min(values), max(values))


def _combinations(grid: Grid) -> list[dict[str, Any]]:
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
