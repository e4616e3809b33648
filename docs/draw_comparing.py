"""Puts the results of a comparison into docs/comparing.md, as tables, and draws docs/comparing.png.

python docs/draw_comparing.py results.json [more.json]     what persfl run compare has left

Files of one code and of the same settings count as one. Cells that lack a method are left out.
Where all sets have at least two seeds in common, only these count; else each has what it has.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from draw_digits import filled

from persfl.checks import percent
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
from persfl.lab.kept_cells import methods_left, read_cells
from persfl.lab.standings import REFERENCE, by_set, least, mean_regret, standings

HERE = Path(__file__).parent


SAME = ("form", "code", "methods", "rounds", "budget", "questions")


def together(paths: Sequence[Path]) -> dict[str, Any]:
    """The content of all files, if they are of one code and the same settings."""
    first, *others = [read_cells(path) for path in paths]
    cells = {(cell["set"], cell["seed"]): cell for cell in first["cells"]}
    for path, other in zip(paths[1:], others, strict=True):
        odd = [key for key in SAME if other.get(key) != first.get(key)]
        if odd:
            raise SystemExit(f"{path} holds results of other {odd[0]} than {paths[0]}.")
        cells |= {(cell["set"], cell["seed"]): cell for cell in other["cells"]}
    whole = [
        cell for cell in cells.values() if not methods_left(cell, first["methods"])
    ]
    seeds = [{cell["seed"] for cell in some} for some in by_set(whole).values()]
    common = set.intersection(*seeds)
    if len(common) > 1:
        whole = [cell for cell in whole if cell["seed"] in common]
    return first | {"cells": whole}


def ordered(content: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Cells by data set, in the order of the page and of seeds."""
    cells = by_set(content["cells"])
    page = (HERE / "comparing.md").read_text(encoding="utf-8")
    order = sorted(cells, key=lambda name: page.find(f"| {name} |"))
    return {name: sorted(cells[name], key=lambda cell: cell["seed"]) for name in order}


def about(
    cells: Mapping[str, Sequence[Mapping[str, Any]]], rounds: int, budget: int
) -> str:
    """What was run."""
    seeds = {name: [cell["seed"] for cell in some] for name, some in cells.items()}
    said = {name: _span(some) for name, some in seeds.items()}
    if len(set(said.values())) == 1:
        many = f"Seeds {next(iter(said.values()))}"
    else:
        listed = ", ".join(f"{name} {span}" for name, span in said.items())
        many = f"Seeds: {listed}"
    once = [name for name, some in seeds.items() if len(some) == 1]
    alone = " A set with one seed has no interval." if once else ""
    return (
        f"{many}.{alone} {len(cells)} data sets, {rounds} rounds, {budget} questions per device"
        f" for blend. {seconds_line(cells)}"
    )


def _span(seeds: Sequence[int]) -> str:
    """Seeds in a row, as in 3000 to 3002."""
    return f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0])


def losses(cells: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Where the reference loses, worst first, and the mean."""
    found = {name: standings(some) for name, some in cells.items()}
    lines = []
    for name, table in sorted(found.items(), key=lambda one: -one[1][REFERENCE].regret):
        ours, rival, alone = (
            table[REFERENCE],
            table[least(table, REFERENCE)],
            table["own"],
        )
        if ours.regret > 0:
            lines.append(
                f"- {name}: {rival.method} {rival.error:.3f}, {REFERENCE} {ours.error:.3f};"
                f" {percent(1 - ours.error / alone.error)} less than own rows alone."
            )
    middle = signed_interval(*mean_regret(cells))
    head = (
        f"The mean regret of {REFERENCE} over these {len(cells)} sets is {middle}. It loses on"
        f" {len(lines)}"
    )
    return f"{head}:\n\n" + "\n".join(lines) if lines else f"{head}."


def main(paths: Sequence[Path]) -> None:
    """Fill the page, draw."""
    content = together(paths)
    cells = ordered(content)
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
    if len(sys.argv) < 2:
        raise SystemExit(
            "usage: python docs/draw_comparing.py results.json [more.json]"
        )
    main([Path(word) for word in sys.argv[1:]])
