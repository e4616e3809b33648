"""The page of `persfl run published`: tables, a figure, and what is wrong with which number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from persfl.lab.drawings import INK, OURS, QUIET, blank_figure
from persfl.lab.published_runs import Published, Scored

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def split_means(
    one: Published, scored: Sequence[Scored]
) -> dict[str, dict[str, float]]:
    """By method and split, best first; several splits that are dealt alike are averaged."""
    mine = [each for each in scored if each.set == one.name]
    found: dict[str, dict[str, list[float]]] = {}
    for each in mine:
        split = "mean" if each.split.startswith("split ") else each.split
        found.setdefault(each.method, {}).setdefault(split, []).append(each.value)
    averaged = {
        method: {split: float(np.mean(values)) for split, values in by.items()}
        for method, by in found.items()
    }
    first = next(iter(next(iter(averaged.values()))))
    order = sorted(averaged, key=lambda name: one.sign * averaged[name][first])
    return {name: averaged[name] for name in order}


def best_of(one: Published, scored: Sequence[Scored]) -> tuple[str, float]:
    """Our best method and its number, on the published split."""
    name, by = next(iter(split_means(one, scored).items()))
    return name, next(iter(by.values()))


def published_page(
    title: str, about: str, sets: Sequence[Published], scored: Sequence[Scored]
) -> str:
    """The whole page, in Markdown."""
    parts = [f"# {title}", about, "![Ours beside published numbers](figure.png)"]
    parts += [_section(one, scored) for one in sets]
    return "\n\n".join(parts) + "\n"


def _section(one: Published, scored: Sequence[Scored]) -> str:
    found = split_means(one, scored)
    splits = list(next(iter(found.values())))
    head = ["ours", *splits, "settings", "tried"]
    lines = [_row(*head), "|---" * len(head) + "|"]
    for name, by in found.items():
        mine = [s for s in scored if s.set == one.name and s.method == name]
        values = [digits(by[split]) if split in by else "" for split in splits]
        lines.append(_row(name, *values, mine[0].variant, str(mine[0].tried)))
    parts = [
        f"## {one.title}",
        f"{one.metric}; {one.better} is better.",
        "\n".join(lines),
    ]
    if one.numbers:
        rows = [_row("published", "", "source"), "|---|---|---|"]
        rows += [_row(name, digits(v), source) for name, v, source in one.numbers]
        parts.append("\n".join(rows))
    parts.append("\n".join(f"- {flaw}" for flaw in one.flaws))
    return "\n\n".join(parts)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def digits(value: float) -> str:
    """Three digits of a large number, four of a share.

    >>> digits(53.225), digits(0.7353), digits(0.02164)
    ('53.2', '.7353', '.0216')
    """
    text = f"{value:.1f}" if value >= 10 else f"{value:.4f}"
    return text.removeprefix("0") if value < 1 else text


def draw_published(sets: Sequence[Published], scored: Sequence[Scored]) -> Figure:
    """A panel per set: our numbers beside published ones, each best first."""
    figure = blank_figure(10, 0.8 + 2.6 * len(sets))
    axes = np.atleast_1d(figure.subplots(len(sets), 1))
    for ax, one in zip(axes, sets, strict=True):
        _panel(ax, one, scored)
    marks = axes[0].get_legend_handles_labels()
    figure.legend(*marks, loc="outside upper center", ncols=2, frameon=False)
    return figure


def _panel(ax: Axes, one: Published, scored: Sequence[Scored]) -> None:
    found = split_means(one, scored)
    names = list(found)
    values = [next(iter(by.values())) for by in found.values()]
    ax.scatter(range(len(names)), values, color=OURS, marker="D", label="ours")
    theirs = sorted(one.numbers, key=lambda number: one.sign * number[1])
    known = [value for _, value, _ in theirs]
    places = len(names) + np.arange(len(known))
    ax.scatter(places, known, color=INK, marker="s", label="published")
    ax.axvline(len(names) - 0.5, color=QUIET, lw=1)
    words = [*names, *(name for name, _, _ in theirs)]
    ax.set_xticks(range(len(words)), words, rotation=25, ha="right", fontsize=8)
    ax.margins(y=0.15)
    ax.grid(axis="y", alpha=0.3, linestyle="--")
    ax.set_title(f"{one.title}: {one.metric}", fontsize=9, loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    if one.sign > 0:
        ax.invert_yaxis()
    ax.set_ylabel("up is better", fontsize=8)
