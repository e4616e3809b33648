"""The pictures of the report as matplotlib figures, for a paper, a slide or a notebook.

Each takes the plain numbers of a report and returns a `matplotlib.figure.Figure` of its own;
nothing here touches pyplot's state:
`gains(info).savefig("gains.png")`. Of the fleet and of groups blue says lower error, grey no
difference shown, orange higher error: an interval above zero, across it, below it. Of one device
blue says "helps here", and grey that its rows are too few to tell.

>>> from persfl import PersonalizedRegressor
>>> from persfl.report import info
>>> from persfl.sources import clustered_regression
>>> rows = clustered_regression(n=16, rows=12, features=2, noise=0.1, seed=0)
>>> found = info(PersonalizedRegressor().fit(rows.X, rows.y, devices=rows.owner))
>>> [draw(found).axes[0].get_xlabel() for draw in (gains, heat_map, losses)]
['share of the error removed by personalizing', 'peer that answers', 'round']
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from persfl.errors import InputError
from persfl.evaluation.verdicts import HELPS
from persfl.report.axes import (
    BAND,
    HIGHER,
    INK,
    LOWER,
    NAMED,
    SAME,
    Intervals,
    draw_intervals,
    draw_shares,
    error_colour,
    float_array,
    name_ticks,
    new_figure,
    percent_of_two_digits,
    percent_tick,
    short_name,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HEAT = ("#f6f4f0", "#cfe0ee", "#86b5dc", "#2f7bbd", "#0a3a6b")

_ENDS = ("low", "gain", "high")

Info = Mapping[str, Any]


def gains(info: Info) -> Figure:
    """Share of the error removed, device by device, best first, with its interval."""
    device = _judged(info)["device"]
    gain = float_array(device["gain"])
    order = np.argsort(-gain, kind="stable")[: int(np.isfinite(gain).sum())]
    drawn = _intervals({key: float_array(device[key])[order] for key in _ENDS})
    colours = [LOWER if device["says"][i] == HELPS else SAME for i in order]
    place = np.arange(len(order))
    lowest = float(np.nanmin(np.concatenate([drawn.low, drawn.middle, [0.0]])))
    ends = (max(-1.0, lowest) - 0.05, 1.02)
    if len(order) <= NAMED:
        figure, (ax,) = new_figure(7.5, 1.3 + 0.24 * max(len(order), 3))
        ax.barh(place, drawn.middle, height=0.6, color=colours, alpha=0.4)
        draw_intervals(ax, place, drawn, colours)
        names = [short_name(info["devices"]["ids"][i]) for i in order]
        ax.set_yticks(place, names, fontsize=8)
        ax.set_xlim(*ends)
        ax.xaxis.set_major_formatter(percent_tick)
        ax.set_xlabel("share of the error removed by personalizing")
    else:
        figure, (ax,) = new_figure(9, 4.2)
        width = max(0.3, min(1.5, 300 / len(order)))
        low = drawn.low
        high = drawn.high
        ax.vlines(place, low, high, colors=colours, linewidth=width, alpha=0.35)
        ax.scatter(place, drawn.middle, color=colours, s=5, zorder=3, linewidths=0)
        ax.set_ylim(*ends)
        ax.set_xlim(-0.01 * len(order), 1.01 * len(order))
        ax.axhline(0, color=INK, linewidth=0.8)
        ax.yaxis.set_major_formatter(percent_tick)
        ax.grid(axis="y", alpha=0.3)
        ax.set_xlabel(f"{len(order):,} devices, best first")
        ax.set_ylabel("share of the error removed")
    ax.set_title(_counts(colours), fontsize=10, loc="left")
    return figure


def heat_map(info: Info) -> Figure:
    """Whose steps each device adopted: rows ask, columns answer, lines separate the blocks."""
    matrix = info["help"]["matrix"]
    values = float_array(matrix["values"])
    n = len(values)
    side = min(9.0, 3.8 + 0.13 * n)
    figure, (ax,) = new_figure(side + 0.9, side)
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    colours = LinearSegmentedColormap.from_list("who helps whom", _HEAT)
    most = max(float(np.nanmax(values, initial=0.0)), 1e-12)
    scale = PowerNorm(0.5, 0.0, most)
    for row, columns in zip(values, matrix.get("never", ()), strict=False):
        row[columns] = np.nan  # what nobody asked is hatched, and not white
    ax.patch.set(hatch="////", edgecolor=BAND)
    image = ax.imshow(values, cmap=colours, norm=scale, interpolation="nearest")
    for start in matrix["blocks"][1:-1]:
        ax.axhline(start - 0.5, color=INK, linewidth=0.8)
        ax.axvline(start - 0.5, color=INK, linewidth=0.8)
    if n <= NAMED:
        name_ticks(ax, matrix["names"], turned=True, both=True)
    else:
        ax.set_xticks([])
        ax.set_yticks([])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_xlabel("peer that answers")
    ax.set_ylabel("device that asks")
    several = any(len(devices) > 1 for devices in matrix["devices"])
    what = "each cell stands for several devices" if several else "who helps whom"
    ax.set_title(what, fontsize=10, loc="left")
    ticks = [most * part for part in (0, 1 / 16, 1 / 4, 9 / 16, 1)]
    bar = figure.colorbar(
        image, ax=ax, shrink=0.75, format=percent_of_two_digits, ticks=ticks
    )
    bar.set_label("share of the row's adopted steps")
    bar.outline.set_visible(False)
    return figure


def helpers(info: Info, device: str) -> Figure:
    """The peers that one device adopted most, and what an answer of each was worth to it.

    The dark tick is the share that chance would give a peer asked this often.
    """
    rows = info["help"]["top"][_position(info, device)]
    figure, (left, right) = new_figure(9, 1.5 + 0.28 * max(len(rows), 3), columns=2)
    figure.suptitle(f"who helps {short_name(device, 40)}", fontsize=11)
    if not rows:
        middle = left.transAxes
        left.text(
            0.5, 0.5, "it asked nobody", ha="center", va="center", transform=middle
        )
        right.set_axis_off()
        left.set_axis_off()
        return figure
    table = float_array(
        rows
    )  # peer, asked, adopted, share, reward, low, high, verdict, alike
    verdicts = [info["help"]["verdicts"][row[7]] for row in rows]
    names = [short_name(info["devices"]["ids"][row[0]]) for row in rows]
    place = np.arange(len(rows))
    draw_shares(left, place, table, info["help"]["chance"])
    left.set_yticks(place, names, fontsize=8)
    colours = [LOWER if row[7] == 0 else SAME for row in rows]
    rewards = Intervals(table[:, 5], table[:, 4], table[:, 6])
    draw_intervals(right, place, rewards, colours)
    right.set_yticks(place, verdicts, fontsize=8)
    right.yaxis.tick_right()
    right.tick_params(axis="y", length=0)
    right.locator_params(axis="x", nbins=5)
    right.spines["left"].set_visible(False)
    right.set_xlabel("reward per question")
    right.set_axisbelow(True)
    return figure


def losses(info: Info, device: str | None = None) -> Figure:
    """The loss of the fleet (median and 10-90 % band), and of one device over it; logarithmic where
    it falls a hundredfold.
    """
    loss = info["loss"]
    rounds = loss["rounds"]
    fleet = loss["fleet"]
    low = float_array(fleet["low"])
    high = float_array(fleet["high"])
    median = float_array(fleet["median"])
    figure, (ax,) = new_figure(7, 4)
    label = "10 % to 90 % of devices"
    ax.fill_between(rounds, low, high, color=BAND, linewidth=0, label=label)
    ax.plot(rounds, median, "--", color=LOWER, linewidth=1.6, label="median device")
    values = np.concatenate([low, high])
    if device is not None:
        own = float_array(loss["device"][_position(info, device)])
        ax.plot(rounds, own, color=HIGHER, linewidth=2, label=short_name(device))
        values = np.append(values, own)
    values = values[np.isfinite(values)]
    positive = values[values > 0]
    if len(positive) and values.min() >= 0 and positive.max() > 100 * positive.min():
        ax.set_yscale("log")
    elif len(values):
        ax.set_ylim(bottom=min(0.0, float(values.min())))
    ax.margins(x=0.01)
    ax.set_xlabel("round")
    ax.set_ylabel(loss["name"])
    ax.grid(axis="y", alpha=0.3)
    ax.legend(frameon=False, fontsize=9)
    return figure


def questions(info: Info) -> Figure:
    """How many questions each device answered as a peer, most first."""
    ids = info["devices"]["ids"]
    order = np.argsort(-float_array(info["help"]["answered"]), kind="stable")
    answered = float_array(info["help"]["answered"])[order]
    n = len(order)
    figure, (ax,) = new_figure(9 if n > 20 else 6, 3.6)
    ax.set_xlim(-0.8, n - 0.2)
    if n <= NAMED:
        ax.bar(np.arange(n), answered, width=0.75, color=LOWER)
        name_ticks(ax, [ids[i] for i in order], turned=n > 5, both=False)
        ax.tick_params(axis="x", length=0)
    else:
        place = np.arange(n)
        ax.fill_between(place, answered, step="mid", color=LOWER, linewidth=0)
        ax.set_ylim(bottom=0)
        ax.set_xlabel(f"{n:,} devices, most asked first")
    ax.yaxis.set_major_formatter("{x:,.0f}")
    ax.set_ylabel("questions answered")
    ax.grid(axis="y", alpha=0.3)
    ax.set_axisbelow(True)
    middle = f"median {np.median(answered):,.0f}"
    counts = f"fewest {answered.min():,.0f}, {middle}, most {answered.max():,.0f}"
    ax.set_title(counts, fontsize=10, loc="left")
    return figure


def worth(info: Info) -> Figure:
    """What personalizing removes of the error of each other way to learn, and in groups of
    devices.
    """
    judged = _judged(info)
    arms = [arm for arm in judged["arms"] if arm["gain"] is not None]
    rows = [*arms, *judged["groups"]]
    names = [f"against {arm['name']}" for arm in arms]
    names += [group["name"] for group in judged["groups"]]
    drawn = _intervals({key: [row[key] for row in rows] for key in _ENDS})
    place = np.arange(len(rows)) + np.where(np.arange(len(rows)) < len(arms), 0.0, 0.8)
    colours = [error_colour(a, b) for a, b in zip(drawn.low, drawn.high, strict=True)]
    figure, (ax,) = new_figure(8, 1.6 + 0.3 * len(rows))
    draw_intervals(ax, place, drawn, colours, size=32, width=2)
    ax.set_yticks(place, [short_name(name, 60) for name in names], fontsize=9)
    left = max(-1.0, float(np.nanmin(np.append(drawn.low, 0.0)))) - 0.04
    right = min(1.0, float(np.nanmax(np.append(drawn.high, 0.0)))) + 0.04
    ax.set_xlim(left, right)
    ax.xaxis.set_major_formatter(percent_tick)
    ax.set_xlabel("share of the error removed, with a 95 % interval")
    figure.suptitle(
        "What personalizing removes: of the error of other models, and in groups of devices",
        fontsize=10,
    )
    return figure


def _judged(info: Info) -> Info:
    found: Info | None = info["worth"]
    if found is None:
        raise InputError(
            "no rows were kept back in this run, so there is no gain to draw."
        )
    return found


def _intervals(columns: Mapping[str, ArrayLike]) -> Intervals:
    return Intervals(*(float_array(columns[key]) for key in _ENDS))


def _position(info: Info, device: str) -> int:
    ids: Sequence[str] = info["devices"]["ids"]
    if device not in ids:
        raise InputError(
            f"no device is called {device!r}. The {len(ids):,} devices start with"
            f" {', '.join(map(repr, ids[:3]))}."
        )
    return ids.index(device)


def _counts(colours: Sequence[str]) -> str:
    words = ((LOWER, HELPS), (SAME, "not enough own rows to tell"))
    return ", ".join(f"{word}: {colours.count(colour):,}" for colour, word in words)
