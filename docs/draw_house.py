"""Draws docs/house.png: the rooms of the source, and which way imports point.

python docs/draw_house.py

The rooms are read from tests/test_layers.py, which holds every import to them.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from test_layers import FLOORS  # noqa: E402

INK, WALL, ROOM = "#222222", "#c9ccd1", "#e8f2ee"
NAMES = [
    "ground: errors, types, files",
    "places of randomness, rows, trust",
    "parts",
    "the loop and its fleets",
    "methods and fits",
    "what people use",
    "command line",
]
WIDTH, GAP = 11.0, 0.12


def main() -> None:
    """One row of boxes per floor, the ground floor at the bottom."""
    figure, ax = plt.subplots(figsize=(11, 5.6))
    for y, (floor, name) in enumerate(zip(FLOORS, NAMES, strict=True)):
        ax.text(-0.15, y + 0.4, name, ha="right", va="center", color=INK, fontsize=9)
        crowded = len(floor) > 8
        letters = [max(map(len, room.split("_"))) + 4 for room in floor]
        x = 0.0
        for room, letter in zip(floor, letters, strict=True):
            wide = (WIDTH - GAP * (len(floor) - 1)) * letter / sum(letters)
            box = plt.Rectangle((x, y), wide, 0.8, facecolor=ROOM, edgecolor=WALL)
            ax.add_patch(box)
            middle = (x + wide / 2, y + 0.4)
            # On a crowded floor a name of two words takes two lines.
            label = room.strip("_").replace("_", "\n") if crowded else room
            size = 6.5 if crowded else 8
            ax.text(*middle, label, ha="center", va="center", color=INK, fontsize=size)
            x += wide + GAP
    top = len(FLOORS) - 0.2
    arrow = {"arrowstyle": "-|>", "color": INK}
    ax.annotate("", (WIDTH + 0.35, 0), (WIDTH + 0.35, top), arrowprops=arrow)
    ax.text(
        WIDTH + 0.5,
        top / 2,
        "imports",
        rotation=270,
        va="center",
        color=INK,
        fontsize=9,
    )
    ax.set_xlim(-3.4, WIDTH + 0.9)
    ax.set_ylim(-0.2, top + 0.1)
    ax.axis("off")
    figure.savefig(HERE / "house.png", dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main()
