"""Regret of every method on every data set, drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from persfl.comparing.standings import REFERENCE, mean_regret, standings
from persfl.errors import need

INK, QUIET, OURS = "#222222", "#b9bec7", "#1b7f5c"
STRONG = {"local": "#c8452d", "clustered": "#a32a5c", "fine-tuned": "#6a51a3", "paper": "#3b6fb6", "kin": "#e08214"}
FURTHEST = 1.5  # regrets beyond this are drawn at the edge


def draw(cells: Mapping[str, Sequence[Mapping[str, Any]]], reference: str = REFERENCE) -> Any:
    """A matplotlib figure: a line per set, a mark per method, the reference large; left of 0 it beats the best rival."""
    need("matplotlib", extra="report", why="drawing a figure")
    from matplotlib.figure import Figure

    names = [*cells, "mean"]
    figure = Figure(figsize=(9, 0.42 * len(names) + 1.6), layout="constrained")
    ax = figure.subplots()
    named: set[str] = set()
    for row, name in enumerate(names):
        for method, (middle, low, high) in _regrets(cells, name, reference).items():
            ours = method == reference
            colour = OURS if ours else STRONG.get(method, QUIET)
            label = method if ours or method in STRONG else "other rivals"
            at, low, high = np.clip([middle, low, high], -FURTHEST, FURTHEST).tolist()
            if not np.isnan(low):
                ax.plot([low, high], [row, row], color=colour, lw=2.4 if ours else 1, alpha=0.8, zorder=2)
            ax.scatter(
                at, row, s=70 if ours else 26, color=colour, marker=">" if middle > FURTHEST else "D" if ours else "o",
                zorder=4 if ours else 3, label=label if label not in named else None,
            )  # fmt: skip
            named.add(label)
    ax.axvline(0, color=INK, lw=1)
    ax.axhline(len(names) - 1.5, color=QUIET, lw=0.8)
    ax.set_yticks(range(len(names)), names)
    ax.set_xlim(right=FURTHEST + 0.05)
    ax.invert_yaxis()
    ax.set_xlabel(f"regret: log(error / least error of all but {reference}); 95 % interval over seeds")
    ax.grid(axis="x", alpha=0.3, linestyle="--")
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    figure.legend(loc="outside upper center", ncols=7, fontsize=9, frameon=False)
    return figure


def _regrets(cells: Mapping[str, Sequence[Mapping[str, Any]]], name: str, reference: str) -> dict[str, tuple[float, float, float]]:
    """Per method its regret on a set, or the mean over sets, with its interval."""
    if name in cells:
        return {one.method: (one.regret, one.regret_low, one.regret_high) for one in standings(cells[name], reference).values()}
    everywhere = set.intersection(*(set(some[0]["errors"]) for some in cells.values()))
    return {method: mean_regret(cells, method, reference) for method in sorted(everywhere)}
