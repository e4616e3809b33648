"""Pictures: the paper's figures with medians and bands, and the regrets of a comparison."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from persfl.errors import need
from persfl.files import write_whole
from persfl.lab.spec_files import Reference, references
from persfl.lab.standings import (
    REFERENCE,
    CellsBySet,
    Interval,
    mean_regret,
    standings,
    variants,
)
from persfl.types import Array

if TYPE_CHECKING:  # an extra
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from persfl.lab.figure_runs import Result
    from persfl.lab.figure_specs import Series

COLOURS = ("#3b6fb6", "#e08214", "#2d7d5a", "#a32a5c", "#6a51a3", "#4d4d4d")
LEAST = 1e-31  # errors of exactly 0 are drawn here

INK, QUIET = "#222222", "#b9bec7"
OURS = "#1b7f5c"
STRONG = {
    "own": "#c8452d",
    "clustered": "#a32a5c",
    "mixed": "#6a51a3",
    "gtvmin": "#e08214",
    "boosting": "#4d4d4d",
    "paper": "#3b6fb6",
}
FURTHEST = 1.5  # regrets beyond this are drawn at the edge


def blank_figure(width: float, height: float) -> Figure:
    """A matplotlib figure with nothing on it, in inches."""
    need("matplotlib", extra="report", why="drawing a figure")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


# Error curves of a figure


def draw_curves(result: Result, *, reference: bool = False) -> Figure:
    """A matplotlib figure in the paper's layout: log axes, medians with a 10-90 % band.

    With `reference` the authors' medians and bands are drawn beside ours.
    """
    panels = list(dict.fromkeys(series.panel for series in result.spec.series))
    figure = blank_figure(max(6.4, 4.2 * len(panels)), 4.4)
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for ax, panel in zip(axes, panels, strict=True):
        lines = [series for series in result.spec.series if series.panel == panel]
        _panel(ax, lines, result, reference)
        if panel:
            ax.set_title(panel, fontsize=10)
    axes[0].set_ylabel(result.spec.ylabel)
    figure.suptitle(result.spec.title, fontsize=11)
    return figure


def _panel(ax: Axes, lines: list[Series], result: Result, reference: bool) -> None:
    for colour, series in zip(cycle(COLOURS), lines, strict=False):
        curves = result.curves[series.name]
        _line(ax, curves, series.name, colour, trees=series.settings.tree)
        if reference and series.reference:
            _points(ax, references()[series.reference], colour, curves.shape[1])
    ax.set_yscale("log")
    if lines[0].settings.tree:
        ax.set_xscale("log")
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter("{x:g}")
    ax.set_xlabel("iteration")
    ax.grid(alpha=0.3, linestyle="--")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(fontsize=8, frameon=False)


def _line(ax: Axes, curves: Array, name: str, colour: str, *, trees: bool) -> None:
    """Median and band of all runs; for trees also the level before the first round."""
    shown = np.quantile(curves[:, 1:], [0.1, 0.5, 0.9], axis=0)
    low, middle, high = np.maximum(shown, LEAST)
    rounds = np.arange(1, curves.shape[1])
    ax.fill_between(
        rounds, low, high, color=colour, alpha=0.06 if trees else 0.15, linewidth=0
    )
    ax.plot(rounds, middle, color=colour, linewidth=1.6, label=name)
    if trees:
        ax.axhline(np.median(curves[:, 0]), color=colour, linestyle="--", linewidth=1)


def _points(ax: Axes, reference: Reference, colour: str, stop: int) -> None:
    """The authors' medians, with bars from their 10 % to their 90 % quantile."""
    here = [i for i, r in enumerate(reference["iteration"]) if r < stop]
    columns = [reference[key] for key in ("iteration", "median", "q10", "q90")]
    rounds, median, low, high = np.maximum(
        np.array(columns, dtype=float)[:, here], LEAST
    )
    bars = [np.maximum(median - low, 0), np.maximum(high - median, 0)]
    edges: dict[str, Any] = {"markeredgecolor": "black", "markeredgewidth": 0.5}
    lines: dict[str, Any] = {"yerr": bars, "elinewidth": 1, "capsize": 2}
    ax.errorbar(rounds, median, fmt="o", markersize=4, color=colour, **lines, **edges)


def save(figure: Figure, path: Path, *, dpi: int) -> None:
    """A figure as a file, in one step and through no link."""
    kind = path.suffix.removeprefix(".")
    write_whole(path, lambda file: figure.savefig(file, format=kind, dpi=dpi))


def save_curves(result: Result, folder: Path) -> None:
    """figure.png and figure.svg, and comparison.png where there is a reference."""
    figure = draw_curves(result)
    for kind in ("png", "svg"):
        save(figure, folder / f"figure.{kind}", dpi=130)
    (folder / "comparison.png").unlink(missing_ok=True)
    if any(series.reference for series in result.spec.series):
        save(draw_curves(result, reference=True), folder / "comparison.png", dpi=110)


# Regrets of a comparison


def draw_regrets(cells: CellsBySet, reference: str = REFERENCE) -> Figure:
    """A matplotlib figure: a line per set, a mark per method, the reference large.

    Left of 0 a method beats the best rival.
    """
    names = [*cells, "mean"]
    figure = blank_figure(9, 0.42 * len(names) + 1.6)
    ax = figure.subplots()
    named: set[str] = set()
    for row, name in enumerate(names):
        for method, regret in _regrets(cells, name, reference).items():
            label = (
                method if method == reference or method in STRONG else "other rivals"
            )
            _mark(ax, row, regret, method, reference, None if label in named else label)
            named.add(label)
    ax.axvline(0, color=INK, lw=1)
    ax.axhline(len(names) - 1.5, color=QUIET, lw=0.8)
    ax.set_yticks(range(len(names)), names)
    ax.set_xlim(right=FURTHEST + 0.05)
    ax.invert_yaxis()
    what = f"regret: log(error / least error of all but {reference})"
    ax.set_xlabel(f"{what}; 95 % interval over seeds")
    ax.grid(axis="x", alpha=0.3, linestyle="--")
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    figure.legend(loc="outside upper center", ncols=7, fontsize=9, frameon=False)
    return figure


def _mark(
    ax: Axes,
    row: int,
    regret: Interval,
    method: str,
    reference: str,
    label: str | None,
) -> None:
    """One method on one set: its regret, and the interval around it as a line."""
    ours = method == reference
    colour = OURS if ours else STRONG.get(method, QUIET)
    middle, low, high = np.clip(regret, -FURTHEST, FURTHEST).tolist()
    if not np.isnan(low):
        width = 2.4 if ours else 1
        ax.plot([low, high], [row, row], color=colour, lw=width, alpha=0.8, zorder=2)
    marker = ">" if regret[0] > FURTHEST else "D" if ours else "o"
    size, order = (70, 4) if ours else (26, 3)
    ax.scatter(
        middle, row, s=size, color=colour, marker=marker, zorder=order, label=label
    )


def _regrets(cells: CellsBySet, name: str, reference: str) -> dict[str, Interval]:
    """Per method its regret on a set, or the mean over sets, with its interval."""
    if name in cells:
        found = standings(cells[name], reference)
        return {method: one.regret_interval for method, one in found.items()}
    everywhere = set.intersection(*(set(variants(some)) for some in cells.values()))
    return {
        method: mean_regret(cells, method, reference) for method in sorted(everywhere)
    }
