"""Draws docs/blend.png: what a device's model is mixed from.

python docs/draw_blend.py

Everything shown is computed by persfl. Left: one of 40 generated devices with four rows and one
feature, and what it is offered. Right: what models are made of in four fleets, mean over devices.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from persfl.datasets import load_housing
from persfl.devices import Devices, offsets
from persfl.methods.blend.mixture import SORTS
from persfl.methods.mixed.device_sums import DeviceSums
from persfl.methods.mixed.linear_rule import linear_blend
from persfl.methods.mixed.mixed_model import MixedModel
from persfl.methods.mixed.near_centres import near
from persfl.sources import clustered_regression
from persfl.units import Units

INK, COLOURS = (
    "#222222",
    {"own": "#c8452d", "fleet": "#8a8f98", "neighbours": "#1b7f5c", "blend": "#222222"},
)


def kinds(n: int = 40, rows: int = 4) -> Devices:
    """Two kinds of lines, every device a little off its kind."""
    rng = np.random.default_rng(5)
    parts = []
    for i in range(n):
        x = rng.uniform(-2, 2, (rows, 1))
        slope = (1.2, -0.4)[i % 2] + 0.1 * rng.standard_normal()
        parts.append((x, slope * x[:, 0] + 0.5 + 0.8 * rng.standard_normal(rows)))
    return Devices.of(parts, quiet=True)


def lines(ax: plt.Axes) -> None:
    """One device's rows and lines."""
    devices = kinds()
    Z = np.column_stack([np.ones(len(devices.y)), devices.X])
    sums = DeviceSums.of(Z, devices.y, devices.weight, devices.start)
    pooled, _ = MixedModel(np.arange(0)).fit(sums)
    full, known = MixedModel(np.arange(2), full=True, loud=True).fit(sums)
    each = known.noise.each
    close = near(sums, each, full, known.Sigma / 2, np.arange(len(devices)))
    x = np.array([-2.0, 2.0])
    shown = {
        "own": np.linalg.solve(sums.square[0], sums.product[0]),
        "fleet": pooled[0],
        "neighbours": close.posterior[0] @ close.models,
        "blend": linear_blend(devices, level=True, seed=0).models[0],
    }
    for name, model in shown.items():
        ax.plot(
            x,
            model[0] + model[1] * x,
            color=COLOURS[name],
            lw=3 if name == "blend" else 1.8,
            ls="-" if name == "blend" else "--",
            label=name,
        )
    ax.scatter(devices[0].X[:, 0], devices[0].y, color=INK, zorder=3, s=36)
    ax.legend(fontsize=9, frameon=False)
    ax.set(xlim=(-2.1, 2.1), xticks=[], yticks=[])
    ax.set_title(
        "four own rows, and what is on offer", fontsize=10, loc="left", color=INK
    )
    ax.spines[["top", "right"]].set_visible(False)


def fleets() -> dict[str, Devices]:
    """Four fleets that ask for different things."""
    housing = load_housing()
    few = housing.frame.groupby("city").sample(10, random_state=0).sort_values("city")
    counts = few.groupby("city").size().to_numpy()
    cities = Devices(
        few[housing.feature_names].to_numpy(float),
        few["log_price"].to_numpy(float),
        np.ones(len(few)),
        offsets(counts),
        range(len(counts)),
    )
    made = {
        "all alike, 10 rows": (1, 10, 1.0),
        "4 kinds, 20 rows": (4, 20, 0.5),
        "60 kinds, 100 rows": (60, 100, 0.5),
    }
    found = {
        "46 cities, 10 rows": Units.of(cities, "shared", labels=True).inside(cities)
    }
    for name, (clusters, rows, noise) in made.items():
        found[name] = clustered_regression(
            n=60, clusters=clusters, rows=rows, features=8, noise=noise, seed=0
        )
    return found


def shares(ax: plt.Axes) -> None:
    """What models are made of."""
    for row, (name, devices) in enumerate(fleets().items()):
        found = linear_blend(devices, level=True, seed=0)
        left = 0.0
        parts = found.made_of.mean(axis=0).tolist()
        for sort, share in zip(SORTS, parts, strict=True):
            ax.barh(row, share, left=left, color=COLOURS[sort], height=0.62)
            if share > 0.25:
                ax.text(
                    left + share / 2,
                    row,
                    f"{sort} {share:.0%}",
                    ha="center",
                    va="center",
                    fontsize=8,
                    color="white",
                )
            left += share
        ax.text(-0.02, row, name, ha="right", va="center", fontsize=9, color=INK)
    ax.set(xlim=(0, 1), xticks=[], yticks=[])
    ax.invert_yaxis()
    ax.set_title("what models are made of", fontsize=10, loc="left", color=INK)
    ax.spines[:].set_visible(False)


def main() -> None:
    """Draw."""
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(10, 3.4), gridspec_kw={"width_ratios": [1, 1.1], "wspace": 0.55}
    )
    lines(left)
    shares(right)
    figure.savefig(Path(__file__).with_name("blend.png"), dpi=130, bbox_inches="tight")


if __name__ == "__main__":
    main()
