"""Draws docs/how.png (one round of Algorithm 1, then many) and docs/refit.png (one answer of
Algorithm 2).

python docs/draw_how.py

Everything shown is computed by persfl: twenty devices of two kinds, one feature, a line each; the
target has four rows.
"""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from persfl import (
    ArrayFleet,
    Best,
    Data,
    Devices,
    GradientStep,
    Linear,
    Refit,
    Tree,
    Uniform,
    personalize,
)
from persfl.seeds import stream

INK, KIN, OTHER, OWN, SOFT = "#222222", "#1b7f5c", "#8a8f98", "#c8452d", "#c9ccd1"
PEERS = 3
KINDS = np.array([[1.0, 0.5], [-0.8, -0.3]])  # slope and intercept of each kind
SEED = 19


def fleet_of(rounds: int) -> tuple[Devices, Any, list[Any], list[Any]]:
    """The devices, the learner, the target's model before every round, and the rounds."""
    rng = np.random.default_rng(SEED)
    parts = []
    for i in range(20):
        X = rng.uniform(-2, 2, (4 if i == 0 else 12, 1))
        slope, height = KINDS[i % 2] + 0.05 * rng.standard_normal(2)
        parts.append((X, X[:, 0] * slope + height + 0.25 * rng.standard_normal(len(X))))
    devices, learner = Devices.of(parts), Linear(intercept=True)
    fleet = ArrayFleet(
        devices, learner=learner, proposer=GradientStep(0.15), targets=[0], seed=SEED
    )
    models, done = [fleet.models[0].copy()], []
    for round_ in personalize(
        fleet, sampler=Uniform(PEERS), adopter=Best(), rounds=rounds, seed=SEED
    ):
        models.append(fleet.models[0].copy())
        done.append(round_)
    return devices, learner, models, done


def plain(ax: plt.Axes, title: str, low: float = -3.3, high: float = 3.5) -> None:
    """A small picture without numbers on its axes."""
    ax.set(xlim=(-2.2, 2.2), ylim=(low, high), xticks=[], yticks=[])
    ax.set_title(title, fontsize=10, loc="left", color=INK)
    ax.spines[["top", "right"]].set_visible(False)


def line(ax: plt.Axes, model: Any, **how: Any) -> None:
    """A model as a line."""
    x = np.array([-2.1, 2.1])
    ax.plot(x, model[0] * x + model[1], **how)


def one_round(
    axes: Any, devices: Devices, learner: Any, models: list[Any], done: list[Any]
) -> None:
    """Ask, answer, score, adopt: round 0."""
    round_, start, proposer = done[0], models[0], GradientStep(0.15)
    own = devices[0]
    plain(axes[0], "1  the target asks")
    axes[0].scatter(own.X[:, 0], own.y, color=OWN, s=42, zorder=3)
    line(axes[0], start, color=INK, lw=2)
    axes[0].text(-2.1, 3.0, "four rows of its own", color=OWN, fontsize=9)
    axes[0].text(
        2.1,
        -0.25,
        "its model,\nsent to three peers",
        color=INK,
        fontsize=9,
        ha="right",
        va="top",
    )
    plain(axes[-1], "3  the target scores them")
    axes[-1].scatter(own.X[:, 0], own.y, color=OWN, s=42, zorder=3)
    taken = int(round_.choice.peers[0, 0])
    for k, peer in enumerate(round_.peers[0].tolist()):
        colour = KIN if peer % 2 == 0 else OTHER
        answer = proposer.answer(learner, start, devices[peer], None)
        plain(
            axes[k + 1],
            f"2  peer {'ABC'[k]} takes a step" if k == 0 else f"    peer {'ABC'[k]}",
        )
        axes[k + 1].scatter(
            devices[peer].X[:, 0], devices[peer].y, color=colour, s=22, alpha=0.75
        )
        line(axes[k + 1], start, color=INK, lw=1.2, ls=":")
        line(axes[k + 1], answer, color=colour, lw=2.4)
        adopted = peer == taken
        line(axes[-1], answer, color=colour, lw=3 if adopted else 1.4)
        says = f"{'ABC'[k]}: loss {round_.losses[0, k + 1]:.2f}{', adopted' if adopted else ''}"
        axes[-1].text(
            2.1,
            -1.85 - 0.42 * k,
            says,
            color=colour,
            fontsize=9,
            weight="bold" if adopted else "normal",
            ha="right",
        )
    axes[1].text(
        -2.1,
        3.0,
        "rows only peer A sees",
        color=KIN if round_.peers[0, 0] % 2 == 0 else OTHER,
        fontsize=9,
    )
    axes[-1].text(
        2.1,
        -1.43,
        f"staying: loss {round_.losses[0, 0]:.2f}",
        color=INK,
        fontsize=9,
        ha="right",
    )


def many_rounds(
    axes: Any, devices: Devices, models: list[Any], done: list[Any]
) -> None:
    """The target's line over rounds, and whose answers it was made of."""
    own = devices[0]
    plain(axes[0], "before, and after 1, 5, 20, 60 rounds")
    line(axes[0], KINDS[0], color=KIN, lw=6, alpha=0.25)
    for r, shade in ((0, 0.25), (1, 0.4), (5, 0.6), (20, 0.8), (60, 1.0)):
        line(axes[0], models[r], color=OWN, lw=1.8, alpha=shade)
    axes[0].scatter(own.X[:, 0], own.y, color=OWN, s=42, zorder=3)
    axes[0].text(
        -2.1, 3.0, "broad: the true line; darker: later", color=KIN, fontsize=9
    )
    ax = axes[1]
    asked = np.array([round_.peers[0] for round_ in done])
    taken = np.array([round_.choice.peers[0, 0] for round_ in done])
    place = {peer: k for k, peer in enumerate([*range(2, 20, 2), *range(1, 20, 2)])}
    rounds = np.arange(1, len(done) + 1)
    for column in asked.T:
        ax.scatter(rounds, [place[p] for p in column.tolist()], s=11, color=SOFT, lw=0)
    kin = taken % 2 == 0
    heights = np.array([place[p] for p in taken.tolist()])
    ax.scatter(rounds[kin], heights[kin], s=26, color=KIN, zorder=3)
    ax.scatter(rounds[~kin], heights[~kin], s=26, color=INK, zorder=3)
    ax.axhline(8.5, color=INK, lw=0.7, ls=":")
    ax.set(
        ylim=(19.6, -1.2), xlim=(0, len(done) + 0.8), xlabel="round", yticks=[4, 13.5]
    )
    ax.set_yticklabels(
        ["peers of the\ntarget's kind", "peers of the\nother kind"], fontsize=9
    )
    ax.tick_params(axis="y", length=0)
    shares = f"{kin.mean():.0%}".replace("%", " %")
    ax.set_title(
        f"asked (pale) and adopted (dark): {shares} of the adopted answers are from its kind",
        fontsize=10,
        loc="left",
        color=INK,
    )
    ax.spines[["top", "right"]].set_visible(False)


def how() -> None:
    """Both rows of docs/how.png."""
    devices, learner, models, done = fleet_of(60)
    figure = plt.figure(figsize=(12.5, 6.4))
    top, bottom = figure.subfigures(2, 1, height_ratios=[1, 1.05])
    one_round(top.subplots(1, 5), devices, learner, models, done)
    many_rounds(bottom.subplots(1, 2, width_ratios=[1, 2.9]), devices, models, done)
    top.subplots_adjust(left=0.012, right=0.988, top=0.9, bottom=0.04, wspace=0.1)
    bottom.subplots_adjust(left=0.012, right=0.988, top=0.88, bottom=0.15, wspace=0.24)
    figure.savefig(Path(__file__).parent / "how.png", dpi=120)


def refit() -> None:
    """docs/refit.png: public points carry the target's model to a peer, whose refit is the
    answer.
    """
    rng = np.random.default_rng(1)
    truth = np.sin

    def rows(n: int, shift: float) -> Data:
        X = rng.uniform(-3, 3, (n, 1))
        return Data(
            X, truth(X[:, 0] + shift) + 0.1 * rng.standard_normal(n), np.ones(n)
        )

    own, kin, stranger = rows(6, 0.0), rows(25, 0.0), rows(25, 2.0)
    public = np.linspace(-3, 3, 25)[:, None]
    learner, proposer = Tree(max_depth=3), Refit(public)
    now = learner.fit(own, stream(0))
    labels = proposer.ask(learner, now)
    grid = np.linspace(-3, 3, 400)[:, None]
    figure, axes = plt.subplots(1, 3, figsize=(12.5, 3.2), sharey=True)
    titles = (
        "1  the target labels the public points by its model",
        "2  a peer fits its rows and those points",
        "3  the target scores the answers on its own rows",
    )
    for ax, title in zip(axes, titles, strict=True):
        plain(ax, title, -1.75, 1.75)
        ax.set_xlim(-3.2, 3.2)
    axes[0].scatter(own.X[:, 0], own.y, color=OWN, s=42, zorder=3)
    axes[0].plot(grid[:, 0], learner.predict(now, grid), color=INK, lw=1.6)
    axes[0].scatter(
        public[:, 0], labels, s=16, facecolor="white", edgecolor=INK, zorder=2
    )
    axes[0].text(-3.1, 1.5, "own rows", color=OWN, fontsize=9)
    axes[0].text(
        3.1,
        -1.5,
        "circles travel, the model does not",
        color=INK,
        fontsize=9,
        ha="right",
    )
    for k, (peer, colour, name) in enumerate(((kin, KIN, "A"), (stranger, OTHER, "B"))):
        answer = proposer.answer(learner, labels, peer, stream(0))
        if k == 0:
            axes[1].scatter(
                public[:, 0], labels, s=16, facecolor="white", edgecolor=INK
            )
            axes[1].scatter(peer.X[:, 0], peer.y, color=colour, s=22, alpha=0.75)
            axes[1].plot(
                grid[:, 0], learner.predict(answer, grid), color=colour, lw=2.4
            )
            axes[1].text(-3.1, 1.5, "rows only peer A sees", color=colour, fontsize=9)
        axes[2].plot(
            grid[:, 0],
            learner.predict(answer, grid),
            color=colour,
            lw=2.8 if k == 0 else 1.4,
        )
        says = f"{name}: loss {learner.loss(answer, own):.3f}{', adopted' if k == 0 else ''}"
        axes[2].text(
            3.1,
            -1.15 - 0.27 * k,
            says,
            color=colour,
            fontsize=9,
            weight="bold" if k == 0 else "normal",
            ha="right",
        )
    axes[2].scatter(own.X[:, 0], own.y, color=OWN, s=42, zorder=3)
    figure.subplots_adjust(left=0.012, right=0.988, top=0.9, bottom=0.04, wspace=0.06)
    figure.savefig(Path(__file__).parent / "refit.png", dpi=120)


if __name__ == "__main__":
    how()
    refit()
