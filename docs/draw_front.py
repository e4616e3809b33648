"""Draws docs/front.png, the picture on the front page: the idea, and what it does in the paper's
setting.

python docs/draw_front.py
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from persfl import ArrayFleet, Best, GradientStep, Linear, Uniform, personalize
from persfl.sources import clustered_regression

INK, KIN, OTHER, OWN = "#222222", "#1b7f5c", "#b0b0b0", "#c8452d"


def idea(ax: plt.Axes) -> None:
    """A target asks, peers answer, the best answer is adopted."""
    ax.set_xlim(0, 10)
    ax.set_ylim(0, 6.2)
    ax.axis("off")
    peers = [
        (8.6, 5.4, KIN, 0.31),
        (8.6, 4.2, OTHER, 5.92),
        (8.6, 3.0, KIN, 0.12),
        (8.6, 1.8, OTHER, 7.40),
        (8.6, 0.6, OTHER, 6.15),
    ]
    ax.text(
        1.4,
        3.0,
        "target\nfew own rows",
        ha="center",
        va="center",
        color="white",
        weight="bold",
        fontsize=11,
        bbox={"boxstyle": "round,pad=0.6", "fc": OWN, "ec": "none"},
    )
    for x, y, color, loss in peers:
        best = loss == 0.12
        ax.annotate(
            "",
            (x - 0.85, y),
            (2.9, 3.0 + (y - 3) * 0.18),
            arrowprops={
                "arrowstyle": "<->",
                "lw": 2.6 if best else 1.0,
                "color": color,
            },
        )
        ax.text(
            x,
            y,
            "peer",
            ha="center",
            va="center",
            color="white",
            fontsize=10,
            bbox={"boxstyle": "round,pad=0.45", "fc": color, "ec": "none"},
        )
        said = f"loss {loss}" + ("  adopt" if best else "")
        ax.text(
            6.1,
            3.0 + (y - 3) * 0.62 + 0.12,
            said,
            ha="center",
            va="bottom",
            fontsize=9,
            color=INK,
            weight="bold" if best else "normal",
            bbox={"fc": "white", "ec": "none", "pad": 0.8},
        )
    ax.text(
        0.0,
        6.0,
        "1 ask a few peers to take one small step on their rows",
        fontsize=10,
        va="top",
        color=INK,
    )
    ax.text(
        0.0,
        0.45,
        "2 score each answer on your own rows\n3 adopt the one that helps most",
        fontsize=10,
        va="center",
        color=INK,
    )


def curve(ax: plt.Axes) -> None:
    """The error of one target, median and 10-90 % of 12 runs."""
    errors, alone, pooled = [], [], []
    for seed in range(12):
        devices = clustered_regression(
            n=100, clusters=2, rows=10, features=20, noise=0.1, seed=seed
        )
        truth = devices.true_weights[0]
        fleet = ArrayFleet(
            devices,
            learner=Linear(),
            proposer=GradientStep(0.05),
            targets=[0],
            seed=seed,
        )
        run = personalize(
            fleet, sampler=Uniform(20), adopter=Best(), rounds=300, seed=seed
        )
        errors.append([((fleet.models[0] - truth) ** 2).sum() for _ in run])
        alone.append(((Linear().fit(devices[0], None) - truth) ** 2).sum())
        pooled.append(
            (
                (Linear().fit(type(devices[0])(devices.X, devices.y), None) - truth)
                ** 2
            ).sum()
        )
    low, middle, high = np.quantile(errors, [0.1, 0.5, 0.9], axis=0)
    rounds = np.arange(1, 301)
    ax.fill_between(rounds, low, high, color=KIN, alpha=0.25, lw=0)
    ax.plot(rounds, middle, color=KIN, lw=2.5)
    ax.axhline(np.median(alone), color=OWN, ls="--")
    ax.axhline(np.median(pooled), color="#777777", ls=":")
    ax.set_yscale("log")
    ax.set_ylim(1e-3, 1e3)
    ax.text(
        298,
        np.median(alone) * 1.35,
        "own rows alone",
        color=OWN,
        ha="right",
        va="bottom",
        fontsize=9.5,
    )
    ax.text(
        298,
        np.median(pooled) / 1.6,
        "everybody pooled",
        color="#555555",
        ha="right",
        va="top",
        fontsize=9.5,
    )
    ax.text(
        298,
        middle[-1] * 2.2,
        "asking who helps",
        color=KIN,
        ha="right",
        va="bottom",
        fontsize=9.5,
        weight="bold",
    )
    ax.set_xlabel("round")
    ax.set_ylabel("squared error of the weights")
    ax.set_title(
        "100 devices of 2 kinds, 10 rows each, 20 weights, noise 0.1", fontsize=10
    )
    ax.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Draw and save."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), width_ratios=[1.1, 1])
    idea(axes[0])
    curve(axes[1])
    figure.tight_layout()
    figure.savefig(Path(__file__).parent / "front.png", dpi=130)


if __name__ == "__main__":
    main()
