"""Puts the results of a comparison into docs/comparing.md, as tables, and draws docs/comparing.png.

python docs/draw_comparing.py results.json     what persfl run compare has left

Only seeds that all data sets have are shown, so that every number is over the same ones.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from draw_digits import filled

from persfl.lab.comparison_cells import read_cells
from persfl.lab.comparison_tables import (
    equal_table,
    questions_table,
    regret_table,
    removed_table,
    seconds_line,
    signed_interval,
    variants_table,
)
from persfl.lab.drawings import draw_regrets
from persfl.lab.standings import REFERENCE, by_set, least, mean_regret, standings

HERE = Path(__file__).parent


def complete(path: Path) -> dict[str, list[Mapping[str, Any]]]:
    """Cells by data set, in the order of the page, for the seeds that no set misses."""
    cells = by_set(read_cells(path)["cells"])
    seeds = set.intersection(
        *({cell["seed"] for cell in some} for some in cells.values())
    )
    if not seeds:
        raise SystemExit(
            f"{path} has no seed that all its data sets have. Run the same command again to"
            " complete it."
        )
    page = (HERE / "comparing.md").read_text(encoding="utf-8")
    order = sorted(cells, key=lambda name: page.find(f"| {name} |"))
    return {
        name: sorted(
            (c for c in cells[name] if c["seed"] in seeds),
            key=lambda cell: cell["seed"],
        )
        for name in order
    }


def about(
    cells: Mapping[str, Sequence[Mapping[str, Any]]], rounds: int, budget: int
) -> str:
    """What was run."""
    seeds = [cell["seed"] for cell in next(iter(cells.values()))]
    many = (
        f"{len(seeds)} seeds ({seeds[0]} to {seeds[-1]})"
        if len(seeds) > 1
        else f"One seed ({seeds[0]}), so regrets have no interval"
    )
    return (
        f"{many}; {len(cells)} data sets, {rounds} rounds, {budget} questions per device for blend."
        f" {seconds_line(cells)}"
    )


def losses(cells: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Where the reference loses, worst first, and the mean."""
    found = {name: standings(some) for name, some in cells.items()}
    lines = []
    for name, table in sorted(found.items(), key=lambda one: -one[1][REFERENCE].regret):
        ours, rival, alone = (
            table[REFERENCE],
            table[least(table, REFERENCE)],
            table["local"],
        )
        if ours.regret > 0:
            lines.append(
                f"- {name}: {rival.method} {rival.error:.3f}, {REFERENCE} {ours.error:.3f};"
                f" {ours.error / alone.error - 1:+.0%} against own rows alone."
            )
    middle = signed_interval(*mean_regret(cells))
    head = (
        f"The mean regret of {REFERENCE} over these {len(cells)} sets is {middle}. It loses on"
        f" {len(lines)}"
    )
    return f"{head}:\n\n" + "\n".join(lines) if lines else f"{head}."


def main(path: Path) -> None:
    """Fill the page, draw."""
    content, cells = read_cells(path), complete(path)
    page = HERE / "comparing.md"
    parts = {
        "about": about(cells, content["rounds"], content["budget"]),
        "regrets": regret_table(cells),
        "equal": equal_table(cells),
        "questions": questions_table(cells),
        "losses": losses(cells),
        "removed": removed_table(cells),
        "variants": variants_table(cells),
    }
    page.write_text(filled(page.read_text(encoding="utf-8"), parts), encoding="utf-8")
    draw_regrets(cells).savefig(HERE / "comparing.png", dpi=110)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python docs/draw_comparing.py results.json")
    main(Path(sys.argv[1]))
