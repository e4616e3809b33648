"""Axes that the report's figures are drawn on, and what they have in common: matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from persfl.errors import need

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from persfl.types import Array, IntArray

LOWER, HIGHER = "#1565a8", "#b34700"  # error
SAME = "#767d86"
INK, BAND = "#1c2127", "#d5e3f0"
NAMED = 60  # devices whose names still fit beside each other


class Intervals(NamedTuple):
    """Where intervals begin, what lies in their middle, where they end."""

    low: Array
    middle: Array
    high: Array


def new_figure(
    width: float, height: float, columns: int = 1
) -> tuple[Figure, list[Axes]]:
    """A figure of its own, so that nothing touches pyplot's state, and its axes."""
    need("matplotlib", extra="report", why="drawing a figure")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = list(figure.subplots(1, columns, squeeze=False)[0])
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def draw_intervals(
    ax: Axes,
    place: Array | IntArray,
    intervals: Intervals,
    colours: Sequence[str],
    *,
    size: float = 18,
    width: float = 1.6,
) -> None:
    """Intervals below each other from the top, a dot on each, and a line where nothing changes."""
    low = intervals.low
    high = intervals.high
    ax.hlines(place, low, high, colors=colours, linewidth=width)
    ax.scatter(intervals.middle, place, color=colours, s=size, zorder=3)
    ax.axvline(0, color=INK, linewidth=0.8)
    ax.set_ylim(place[-1] + 0.6 if len(place) else -0.4, -0.6)
    ax.grid(axis="x", alpha=0.3)
    ax.tick_params(axis="y", length=0)


def draw_shares(ax: Axes, place: IntArray, table: Array, chance: float) -> None:
    """How much of what was adopted came from each peer, and what chance would give it."""
    asked = table[:, 1]
    adopted = table[:, 2]
    share = table[:, 3]
    ax.barh(place, share, height=0.6, color=LOWER)
    known = np.flatnonzero((share > 0) & (adopted > 0))
    if len(known):
        # of one answer of a peer, in shares: the same for all peers
        each = share[known[0]] / adopted[known[0]]
        ticks = asked * chance * each
        ax.vlines(ticks, place - 0.42, place + 0.42, colors=INK, linewidth=1.6)
    ax.xaxis.set_major_formatter(percent_tick)
    ax.set_xlabel("share of adopted steps (tick: by chance)")
    ax.set_ylim(len(place) - 0.4, -0.6)
    ax.grid(axis="x", alpha=0.3)
    ax.set_axisbelow(True)
    ax.tick_params(axis="y", length=0)


def error_colour(low: float, high: float) -> str:
    """The colour of a gain, by its interval."""
    return LOWER if low > 0 else HIGHER if high < 0 else SAME


def name_ticks(ax: Axes, names: Sequence[str], *, turned: bool, both: bool) -> None:
    """Names of devices below the axes, and with `both` beside them too."""
    size = 8 if len(names) <= 30 else 6.5
    short = [short_name(name) for name in names]
    ax.set_xticks(range(len(names)), short, rotation=90 if turned else 0, fontsize=size)
    if both:
        ax.set_yticks(range(len(names)), short, fontsize=size)


def float_array(values: ArrayLike) -> Array:
    """Numbers of a report; None becomes NaN, which is not drawn."""
    return np.array(values, dtype=np.float64)


def short_name(name: str, most: int = 22) -> str:
    """A label that fits; a dollar sign would start a formula.

    >>> short_name("a very long name of a device", 12)
    'a very long…'
    """
    name = " ".join(str(name).split())
    if len(name) > most:
        name = name[: most - 1].rstrip() + "…"
    return name.replace("$", r"\$")


def percent_tick(value: float, _: float = 0) -> str:
    """A share beside an axis."""
    return f"{round(100 * value, 6):g} %".replace("-", "\N{MINUS SIGN}")


def percent_of_two_digits(value: float, _: float = 0) -> str:
    """A share beside colours, whose steps are no round numbers."""
    return f"{100 * value:.2g} %" if value < 0.995 else "100 %"
