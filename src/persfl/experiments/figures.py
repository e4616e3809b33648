"""Pictures of results: the paper's layout (log axes, same series), medians with a 10-90 % band, the reference on top."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from persfl.errors import need
from persfl.experiments.runner import Result
from persfl.experiments.spec import references

COLOURS = ("#3b6fb6", "#e08214", "#2d7d5a", "#a32a5c", "#6a51a3", "#4d4d4d")
LEAST = 1e-31  # errors of exactly 0 are drawn here


def draw(result: Result, *, reference: bool = False) -> Any:
    """A matplotlib figure; with `reference` the authors' medians and bands are drawn beside ours."""
    need("matplotlib", extra="report", why="drawing a figure")
    from matplotlib.figure import Figure

    panels = list(dict.fromkeys(series.panel for series in result.spec.series))
    figure = Figure(figsize=(max(6.4, 4.2 * len(panels)), 4.4), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for ax, panel in zip(axes, panels, strict=True):
        lines = [series for series in result.spec.series if series.panel == panel]
        for colour, series in zip(cycle(COLOURS), lines, strict=False):
            _line(ax, result.curves[series.name], series.name, colour, trees=series.settings.tree)
            if reference and series.reference:
                _band(ax, references()[series.reference], colour, result.curves[series.name].shape[1])
        trees = lines[0].settings.tree
        ax.set_yscale("log")
        if trees:
            ax.set_xscale("log")
            ax.yaxis.set_major_formatter("{x:g}")
            ax.yaxis.set_minor_formatter("{x:g}")
        ax.set_xlabel("iteration")
        ax.grid(alpha=0.3, linestyle="--")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(fontsize=8, frameon=False)
        if panel:
            ax.set_title(panel, fontsize=10)
    axes[0].set_ylabel(result.spec.ylabel)
    figure.suptitle(result.spec.title, fontsize=11)
    return figure


def _line(ax: Any, curves: Any, name: str, colour: str, *, trees: bool) -> None:
    low, middle, high = (np.maximum(q, LEAST) for q in np.quantile(curves[:, 1:], [0.1, 0.5, 0.9], axis=0))
    rounds = np.arange(1, curves.shape[1])
    ax.fill_between(rounds, low, high, color=colour, alpha=0.06 if trees else 0.15, linewidth=0)
    ax.plot(rounds, middle, color=colour, linewidth=1.6, label=name)
    if trees:
        ax.axhline(np.median(curves[:, 0]), color=colour, linestyle="--", linewidth=1)


def _band(ax: Any, reference: dict[str, Any], colour: str, stop: int) -> None:
    shown = [i for i, r in enumerate(reference["iteration"]) if r < stop]
    rounds, median, low, high = (
        np.maximum(np.array(reference[key], dtype=float)[shown], LEAST) for key in ("iteration", "median", "q10", "q90")
    )
    ax.errorbar(
        rounds, median, yerr=[np.maximum(median - low, 0), np.maximum(high - median, 0)],
        fmt="o", markersize=4, color=colour, markeredgecolor="black", markeredgewidth=0.5, elinewidth=1, capsize=2,
    )  # fmt: skip


def save(result: Result, folder: Path) -> None:
    """figure.png and figure.svg, and comparison.png where there is a reference."""
    figure = draw(result)
    for kind in ("png", "svg"):
        figure.savefig(folder / f"figure.{kind}", dpi=130)
    (folder / "comparison.png").unlink(missing_ok=True)
    if any(series.reference for series in result.spec.series):
        draw(result, reference=True).savefig(folder / "comparison.png", dpi=110)
