"""The pictures of the report as matplotlib figures, for a paper, a slide or a notebook.

Each takes the plain numbers of a report and returns a `matplotlib.figure.Figure` of its own;
nothing here touches pyplot's state:
`gains(info).savefig("gains.png")`. Of the fleet and of groups blue says lower error, grey no
difference shown, orange higher error: an interval above zero, across it, below it. Of one device
blue says "helps here", and grey that its rows are too few to tell.

>>> from persfl.report.example import example_info
>>> info = example_info(devices=8)
>>> [draw(info).axes[0].get_xlabel() for draw in (gains, heat_map, losses)]
['share of the error removed by asking peers', 'peer that answers', 'round']
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from persfl.errors import InputError, need
from persfl.evaluation.verdicts import HELPS

LOWER, SAME, HIGHER, INK, BAND = "#1565a8", "#767d86", "#b34700", "#1c2127", "#d5e3f0"
_HEAT = ("#f6f4f0", "#cfe0ee", "#86b5dc", "#2f7bbd", "#0a3a6b")
_NAMED = 60  # devices whose names still fit beside each other

Info = Mapping[str, Any]


def gains(info: Info) -> Any:
    """Share of the error removed, device by device, best first, with its interval.

    >>> from persfl.report.example import example_info
    >>> info = example_info(devices=8)
    >>> bars = gains(info).axes[0].containers[0]
    >>> float(bars[0].get_width()) == max(
    ...     gain for gain in info["worth"]["device"]["gain"] if gain is not None
    ... )
    True
    """
    device = _judged(info)["device"]
    gain, low, high = (_array(device[key]) for key in ("gain", "low", "high"))
    order = np.argsort(-gain, kind="stable")[: int(np.isfinite(gain).sum())]
    gain, low, high = gain[order], low[order], high[order]
    names = [_short(info["devices"]["ids"][i]) for i in order]
    colours = [LOWER if device["says"][i] == HELPS else SAME for i in order]
    place = np.arange(len(order))
    floor = max(-1.0, float(np.nanmin(np.concatenate([low, gain, [0.0]]))))
    if len(order) <= _NAMED:
        figure, ax = _figure(7.5, 1.3 + 0.24 * max(len(order), 3))
        ax.barh(place, gain, height=0.6, color=colours, alpha=0.4)
        ax.hlines(place, low, high, colors=colours, linewidth=1.6)
        ax.scatter(gain, place, color=colours, s=18, zorder=3)
        ax.set_yticks(place, names, fontsize=8)
        ax.set_ylim(len(order) - 0.4, -0.6)
        ax.set_xlim(floor - 0.05, 1.02)
        ax.axvline(0, color=INK, linewidth=0.8)
        ax.xaxis.set_major_formatter(_percent)
        ax.grid(axis="x", alpha=0.3)
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel("share of the error removed by asking peers")
    else:
        figure, ax = _figure(9, 4.2)
        ax.vlines(
            place,
            low,
            high,
            colors=colours,
            linewidth=max(0.3, min(1.5, 300 / len(order))),
            alpha=0.35,
        )
        ax.scatter(place, gain, color=colours, s=5, zorder=3, linewidths=0)
        ax.set_ylim(floor - 0.05, 1.02)
        ax.set_xlim(-0.01 * len(order), 1.01 * len(order))
        ax.axhline(0, color=INK, linewidth=0.8)
        ax.yaxis.set_major_formatter(_percent)
        ax.grid(axis="y", alpha=0.3)
        ax.set_xlabel(f"{len(order):,} devices, best first")
        ax.set_ylabel("share of the error removed")
    ax.set_title(_counts(colours), fontsize=10, loc="left")
    return figure


def heat_map(info: Info) -> Any:
    """Whose steps each device adopted: rows ask, columns answer, lines separate the blocks.

    >>> from persfl.report.example import example_info
    >>> info = example_info(devices=8)
    >>> image = heat_map(info).axes[0].images[0].get_array()
    >>> image.shape, bool((image == info["help"]["matrix"]["values"]).all())
    ((8, 8), True)
    """
    need("matplotlib", extra="report", why="drawing a figure")
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    matrix = info["help"]["matrix"]
    values = _array(matrix["values"])
    n = len(values)
    side = min(9.0, 3.8 + 0.13 * n)
    figure, ax = _figure(side + 0.9, side)
    colours = LinearSegmentedColormap.from_list("who helps whom", _HEAT)
    most = max(float(np.nanmax(values, initial=0.0)), 1e-12)
    image = ax.imshow(
        values, cmap=colours, norm=PowerNorm(0.5, 0.0, most), interpolation="nearest"
    )
    for start in matrix["blocks"][1:-1]:
        ax.axhline(start - 0.5, color=INK, linewidth=0.8)
        ax.axvline(start - 0.5, color=INK, linewidth=0.8)
    if n <= _NAMED:
        names = [_short(name) for name in matrix["names"]]
        size = 8 if n <= 30 else 6.5
        ax.set_xticks(range(n), names, rotation=90, fontsize=size)
        ax.set_yticks(range(n), names, fontsize=size)
    else:
        ax.set_xticks([])
        ax.set_yticks([])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    several = any(len(devices) > 1 for devices in matrix["devices"])
    ax.set_xlabel("peer that answers")
    ax.set_ylabel("device that asks")
    ax.set_title(
        "each cell stands for several devices" if several else "who helps whom",
        fontsize=10,
        loc="left",
    )
    bar = figure.colorbar(
        image,
        ax=ax,
        shrink=0.75,
        format=_two_digits,
        ticks=[0.0, most / 16, most / 4, most * 9 / 16, most],
    )
    bar.set_label("share of the row's adopted steps")
    bar.outline.set_visible(False)
    return figure


def helpers(info: Info, device: str) -> Any:
    """The peers that one device adopted most, and what an answer of each was worth to it.

    The dark tick is the share that chance would give a peer asked this often.

    >>> from persfl.report.example import example_info
    >>> info = example_info(devices=8)
    >>> [
    ...     len(ax.containers) + len(ax.collections)
    ...     for ax in helpers(info, "Denton").axes
    ... ]
    [2, 2]
    """
    i = _index(info, device)
    rows, ids = info["help"]["top"][i], info["devices"]["ids"]
    figure, (left, right) = _figure(9, 1.5 + 0.28 * max(len(rows), 3), columns=2)
    figure.suptitle(f"who helps {_short(device, 40)}", fontsize=11)
    if not rows:
        left.text(
            0.5,
            0.5,
            "it asked nobody",
            ha="center",
            va="center",
            transform=left.transAxes,
        )
        right.set_axis_off()
        left.set_axis_off()
        return figure
    peers, asked, adopted, share, reward, low, high = (
        _array(column) for column in list(zip(*rows, strict=True))[:7]
    )
    codes = [row[7] for row in rows]
    place = np.arange(len(rows))
    left.barh(place, share, height=0.6, color=LOWER)
    known = np.flatnonzero((share > 0) & (adopted > 0))
    if len(known):
        chance = asked * info["help"]["chance"] * share[known[0]] / adopted[known[0]]
        left.vlines(chance, place - 0.42, place + 0.42, colors=INK, linewidth=1.6)
    left.set_yticks(place, [_short(ids[int(j)]) for j in peers], fontsize=8)
    left.xaxis.set_major_formatter(_percent)
    left.set_xlabel("share of adopted steps (tick: by chance)")
    colours = [LOWER if code == 0 else SAME for code in codes]
    right.hlines(place, low, high, colors=colours, linewidth=1.6)
    right.scatter(reward, place, color=colours, s=18, zorder=3)
    right.axvline(0, color=INK, linewidth=0.8)
    right.set_yticks(
        place, [info["help"]["verdicts"][code] for code in codes], fontsize=8
    )
    right.yaxis.tick_right()
    right.locator_params(axis="x", nbins=5)
    right.spines["left"].set_visible(False)
    right.set_xlabel("reward per question")
    for ax in (left, right):
        ax.set_ylim(len(rows) - 0.4, -0.6)
        ax.grid(axis="x", alpha=0.3)
        ax.set_axisbelow(True)
        ax.tick_params(axis="y", length=0)
    return figure


def losses(info: Info, device: str | None = None) -> Any:
    """The loss of the fleet (median and 10-90 % band), and of one device over it; logarithmic where
    it falls a hundredfold.

    >>> from persfl.report.example import example_info
    >>> [
    ...     len(losses(example_info(devices=8), device).axes[0].lines)
    ...     for device in (None, "Bryan")
    ... ]
    [1, 2]
    """
    loss = info["loss"]
    rounds = loss["rounds"]
    low, median, high = (
        _array(loss["fleet"][key]) for key in ("low", "median", "high")
    )
    figure, ax = _figure(7, 4)
    ax.fill_between(
        rounds, low, high, color=BAND, linewidth=0, label="10 % to 90 % of devices"
    )
    ax.plot(
        rounds,
        median,
        color=LOWER,
        linestyle="--",
        linewidth=1.6,
        label="median device",
    )
    drawn = [low, high]
    if device is not None:
        own = _array(loss["device"][_index(info, device)])
        ax.plot(rounds, own, color=HIGHER, linewidth=2, label=_short(device))
        drawn.append(own)
    values = np.concatenate(drawn)
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


def questions(info: Info) -> Any:
    """How many questions each device answered as a peer, most first.

    >>> from persfl.report.example import example_info
    >>> info = example_info(devices=8)
    >>> [int(bar.get_height()) for bar in questions(info).axes[0].patches] == sorted(
    ...     info["help"]["answered"], reverse=True
    ... )
    True
    """
    answered = _array(info["help"]["answered"])
    order = np.argsort(-answered, kind="stable")
    n = len(order)
    figure, ax = _figure(9 if n > 20 else 6, 3.6)
    ax.set_xlim(-0.8, n - 0.2)
    if n <= _NAMED:
        ax.bar(np.arange(n), answered[order], width=0.75, color=LOWER)
        size = 8 if n <= 30 else 6.5
        names = [_short(info["devices"]["ids"][i]) for i in order]
        ax.set_xticks(range(n), names, rotation=90 if n > 5 else 0, fontsize=size)
        ax.tick_params(axis="x", length=0)
    else:
        ax.fill_between(
            np.arange(n), answered[order], step="mid", color=LOWER, linewidth=0
        )
        ax.set_ylim(bottom=0)
        ax.set_xlabel(f"{n:,} devices, most asked first")
    ax.yaxis.set_major_formatter("{x:,.0f}")
    ax.set_ylabel("questions answered")
    ax.grid(axis="y", alpha=0.3)
    ax.set_axisbelow(True)
    summary = (
        f"fewest {answered.min():,.0f}, median {np.median(answered):,.0f}, most"
        f" {answered.max():,.0f}"
    )
    ax.set_title(summary, fontsize=10, loc="left")
    return figure


def worth(info: Info) -> Any:
    """What personalizing removes of the error of each other way to learn, and in groups of devices.

    >>> from persfl.report.example import example_info
    >>> [
    ...     text.get_text()
    ...     for text in worth(example_info(devices=8)).axes[0].get_yticklabels()
    ... ][:2]
    ['against own rows only', 'against one model for all']
    """
    found = _judged(info)
    arms = [
        (f"against {arm['name']}", arm)
        for arm in found["arms"]
        if arm["gain"] is not None
    ]
    groups = [(group["name"], group) for group in found["groups"]]
    rows = arms + groups
    low, gain, high = (
        _array([row[key] for _, row in rows]) for key in ("low", "gain", "high")
    )
    place = np.arange(len(rows)) + np.where(np.arange(len(rows)) < len(arms), 0.0, 0.8)
    colours = [_colour(a, b) for a, b in zip(low, high, strict=True)]
    figure, ax = _figure(8, 1.6 + 0.3 * len(rows))
    ax.hlines(place, low, high, colors=colours, linewidth=2)
    ax.scatter(gain, place, color=colours, s=32, zorder=3)
    ax.axvline(0, color=INK, linewidth=0.8)
    ax.set_yticks(place, [_short(name, 60) for name, _ in rows], fontsize=9)
    ax.set_ylim(place[-1] + 0.6, -0.6)
    ax.set_xlim(
        max(-1.0, float(np.nanmin(np.append(low, 0.0)))) - 0.04,
        min(1.0, float(np.nanmax(np.append(high, 0.0)))) + 0.04,
    )
    ax.tick_params(axis="y", length=0)
    ax.xaxis.set_major_formatter(_percent)
    ax.grid(axis="x", alpha=0.3)
    ax.set_xlabel("share of the error removed, with a 95 % interval")
    figure.suptitle(
        "What personalizing removes: of the error of other models, and in groups of devices",
        fontsize=10,
    )
    return figure


def _figure(width: float, height: float, columns: int = 1) -> tuple[Any, Any]:
    need("matplotlib", extra="report", why="drawing a figure")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False)[0]
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes[0] if columns == 1 else axes


def _judged(info: Info) -> Any:
    if info["worth"] is None:
        raise InputError(
            "no rows were kept back in this run, so there is no gain to draw."
        )
    return info["worth"]


def _index(info: Info, device: str) -> int:
    ids: Sequence[str] = info["devices"]["ids"]
    if device not in ids:
        raise InputError(
            f"no device is called {device!r}. The {len(ids):,} devices start with"
            f" {', '.join(map(repr, ids[:3]))}."
        )
    return ids.index(device)


def _array(values: Any) -> Any:
    return np.array(values, dtype=float)  # None becomes NaN, which is not drawn


def _colour(low: float, high: float) -> str:
    return LOWER if low > 0 else HIGHER if high < 0 else SAME


def _counts(colours: Sequence[str]) -> str:
    words = ((LOWER, HELPS), (SAME, "not enough own rows to tell"))
    return ", ".join(f"{word}: {colours.count(colour):,}" for colour, word in words)


def _short(name: str, most: int = 22) -> str:
    """A label that fits; a dollar sign would start a formula.

    >>> _short("a very long name of a device", 12)
    'a very long…'
    """
    name = " ".join(str(name).split())
    return (name if len(name) <= most else name[: most - 1].rstrip() + "…").replace(
        "$", r"\$"
    )


def _percent(value: float, _: Any = None) -> str:
    return f"{round(100 * value, 6):g} %".replace("-", "\N{MINUS SIGN}")


def _two_digits(value: float, _: Any = None) -> str:
    return f"{100 * value:.2g} %" if value < 0.995 else "100 %"
