"""Draws docs/kin.png: how kin is found by shrinking steps.

python docs/draw_kin.py

Everything shown is computed by persfl. Top: a target with one row and two coefficients among eight
peers of two kinds. Bottom: the paper's toy, 100 devices of 10 rows in five clusters, 20
coefficients.
"""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from persfl import (
    ArrayFleet,
    Best,
    Devices,
    GradientStep,
    Linear,
    Uniform,
    kin,
    personalize,
)
from persfl.rules import finished, members
from persfl.sources import clustered_regression

INK, KIN, OTHER, OWN, SOFT = "#222222", "#1b7f5c", "#8a8f98", "#c8452d", "#c9ccd1"
TRUTH = np.array([[2.0, 1.6], [-1.9, 1.1]])  # two coefficients of each kind


def plane(ax: plt.Axes, title: str, devices: Devices, model: Any, note: str) -> None:
    """Every device's step from one model, in the plane of coefficients."""
    ax.set(xlim=(-3.1, 3.1), ylim=(-1.1, 3.1), xticks=[], yticks=[], aspect="equal")
    ax.set_title(title, fontsize=10, loc="left", color=INK)
    ax.spines[["top", "right"]].set_visible(False)
    own = devices[0]
    x = np.array([-3.1, 3.1])
    ax.plot(x, (own.y[0] - own.X[0, 0] * x) / own.X[0, 1], color=OWN, lw=1.2, ls=":")
    for kind, colour in zip(TRUTH, (KIN, OTHER), strict=True):
        ax.scatter(*kind, marker="*", s=130, color=colour, zorder=2)
    for i in range(1, len(devices)):
        step = GradientStep(0.18).answer(Linear(), model, devices[i], None) - model
        ax.annotate(
            "",
            xytext=model,
            xy=model + step,
            arrowprops={
                "arrowstyle": "->",
                "color": KIN if i % 2 == 0 else OTHER,
                "lw": 1.4,
            },
        )
    ax.scatter(*model, color=OWN, s=46, zorder=4)
    ax.text(3.05, -0.98, note, fontsize=9, color=INK, ha="right")


def planes(axes: Any) -> None:
    """Meet, alone, followed."""
    rng = np.random.default_rng(3)
    parts = []
    for i in range(9):
        X = np.array([[0.5, 1.0]]) if i == 0 else rng.standard_normal((12, 2))
        parts.append(
            (X, X @ TRUTH[i % 2] + (0 if i == 0 else 0.1) * rng.standard_normal(len(X)))
        )
    devices = Devices.of(parts, quiet=True)
    start = np.zeros(2)
    alone = start
    for _ in range(40):
        alone = GradientStep(0.1).answer(Linear(), alone, devices[0], None)
    both = alone
    for _ in range(200):
        step = [
            GradientStep(0.1).answer(Linear(), both, devices[i], None) - both
            for i in (0, 2, 4, 6, 8)
        ]
        both = both + np.mean(step, axis=0)
    plane(
        axes[0],
        "1  meet: everyone takes a step from my start",
        devices,
        start,
        "stars: what each kind would have",
    )
    plane(
        axes[1],
        "2  alone: I go my own way, and ask again",
        devices,
        alone,
        "my kin's steps shrink, strangers' do not",
    )
    plane(
        axes[2],
        "3  I follow those that shrank",
        devices,
        both,
        "at our common best my kin's steps cancel",
    )
    axes[0].text(-3.0, 2.2, "dotted: fits my one row", fontsize=9, color=OWN)


def shrinking(ax: plt.Axes, devices: Devices) -> tuple[Any, list[float]]:
    """Every peer's shrink over questions, and the target's error."""
    fleet = ArrayFleet(
        devices, learner=Linear(), proposer=GradientStep(0.05), targets=[0]
    )
    rule, asked, errors, said, lines = kin(20), 0, [], [], {}
    phases: dict[str, int] = {}
    for round_ in personalize(
        fleet, sampler=rule.sampler, adopter=rule.adopter, rounds=400
    ):
        asked += int((round_.peers >= 0).sum())
        known = members(round_.trust)
        said.append(round_.r)
        for peer, value in zip(
            known.panel[0].tolist(), known.shrink[0].tolist(), strict=True
        ):
            lines.setdefault(peer, []).append((round_.r, value))
        errors.append(
            (asked, float(((fleet.models[0] - devices.true_weights[0]) ** 2).sum()))
        )
        if not known.alone[0]:
            phases.setdefault("search", round_.r)
        if known.right[0]:
            phases.setdefault("right", round_.r)
        if finished(round_.trust):
            break
    for peer, line in sorted(
        lines.items(), key=lambda item: devices.clusters[item[0]] == devices.clusters[0]
    ):
        same = devices.clusters[peer] == devices.clusters[0]
        ax.step(
            *zip(*[(r, np.exp(value / 2)) for r, value in line], strict=True),
            color=KIN if same else SOFT,
            lw=1.0,
            where="post",
        )
    ax.set(yscale="log", xlabel="round", xlim=(0, said[-1]))
    ax.set_title(
        "length of each peer's step over that of its first, when last judged",
        fontsize=10,
        loc="left",
        color=INK,
    )
    high = ax.get_ylim()[1]
    for where, name in (
        (0, "meet"),
        (5, "alone"),
        (phases["search"], "search"),
        (phases["right"], "a group, and I am part of it"),
    ):
        ax.axvline(where, color=INK, lw=0.6, ls=":")
        ax.text(
            where + 0.6,
            high * (0.55 if name == "alone" else 1.0),
            name,
            fontsize=9,
            color=INK,
            va="top",
        )
    ax.text(said[-1] - 1, 0.02, "19 kin", color=KIN, fontsize=9, ha="right")
    ax.text(
        said[-1] - 1,
        0.35,
        "80 strangers",
        color=OTHER,
        fontsize=9,
        ha="right",
        va="top",
    )
    ax.spines[["top", "right"]].set_visible(False)
    return phases, errors


def falling(ax: plt.Axes, devices: Devices, errors: list[Any]) -> None:
    """The error over questions, with the paper's rule and the limit."""
    fleet = ArrayFleet(
        devices, learner=Linear(), proposer=GradientStep(0.05), targets=[0]
    )
    paper = []
    for round_ in personalize(fleet, sampler=Uniform(20), adopter=Best(), rounds=200):
        paper.append(
            (
                20 * (round_.r + 1),
                float(((fleet.models[0] - devices.true_weights[0]) ** 2).sum()),
            )
        )
    rows = devices.clusters[devices.owner] == devices.clusters[0]
    best = np.linalg.lstsq(devices.X[rows], devices.y[rows], rcond=None)[0]
    limit = ((best - devices.true_weights[0]) ** 2).sum()
    ax.plot(*zip(*paper, strict=True), color=OTHER, lw=1.6)
    ax.plot(*zip(*errors, strict=True), color=KIN, lw=2.2)
    ax.axhline(limit, color=INK, lw=0.8, ls="--")
    ax.scatter(*errors[-1], color=KIN, s=36, zorder=3)
    ax.text(
        3950,
        limit * 0.5,
        "all rows of the same cluster in one place",
        fontsize=9,
        ha="right",
        va="top",
        color=INK,
    )
    ax.text(
        errors[-1][0],
        limit * 0.8,
        "kin stops asking",
        fontsize=9,
        color=KIN,
        ha="right",
        va="top",
    )
    ax.text(
        3950,
        paper[-1][1] * 1.6,
        "the paper's rule",
        fontsize=9,
        ha="right",
        color=OTHER,
    )
    ax.set(yscale="log", xlabel="questions", xlim=(0, 4000), ylim=(limit / 4, None))
    ax.set_title(
        "squared error of the target's coefficients", fontsize=10, loc="left", color=INK
    )
    ax.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """docs/kin.png."""
    figure = plt.figure(figsize=(12.5, 6.6))
    top = figure.add_gridspec(
        1, 3, left=0.012, right=0.988, top=0.95, bottom=0.56, wspace=0.05
    )
    below = figure.add_gridspec(
        1, 2, left=0.05, right=0.985, top=0.47, bottom=0.075, wspace=0.13
    )
    planes([figure.add_subplot(top[0, k]) for k in range(3)])
    devices = clustered_regression(
        n=100, clusters=5, rows=10, features=20, noise=0.1, seed=4
    )
    _, errors = shrinking(figure.add_subplot(below[0, 0]), devices)
    falling(figure.add_subplot(below[0, 1]), devices, errors)
    figure.savefig(Path(__file__).parent / "kin.png", dpi=120)


if __name__ == "__main__":
    main()
