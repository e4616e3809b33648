"""`persfl run published`: our methods by other people's protocols, beside their numbers."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from persfl.commands.progress import table
from persfl.errors import InputError, need
from persfl.files import write_whole


def run_published_sets(chosen: argparse.Namespace, changes: dict[str, Any]) -> int:
    """Every set whose file is there; the page and its figure go into the results folder."""
    from persfl.lab.figure_files import results_folder
    from persfl.lab.published_page import (
        best_of,
        digits,
        draw_published,
        published_page,
    )
    from persfl.lab.published_runs import load_published, run_published, there

    if changes:
        raise InputError(f"published has no setting {next(iter(changes))!r}.")
    if not chosen.numbers:
        need("matplotlib", extra="report", why="drawing figures")
    title, about, every = load_published(chosen.spec)
    sets, missing = there(every, chosen.data, chosen.only)
    folder = results_folder(Path(chosen.out), Path(chosen.spec).stem)
    begin = time.perf_counter()
    scored = run_published(
        sets,
        Path(chosen.data),
        folder / "results.json",
        seed=chosen.seed,
        quick=chosen.quick,
    )
    page = published_page(title, about, sets, scored)
    write_whole(folder / "page.md", page.encode())
    if not chosen.numbers:
        from persfl.lab.drawings import save

        save(draw_published(sets, scored), folder / "figure.png", dpi=130)
    rows = []
    for one in sets:
        name, value = best_of(one, scored)
        ordered = sorted(one.numbers, key=lambda number: one.sign * number[1])
        theirs = f"{ordered[0][0]} {digits(ordered[0][1])}" if ordered else "none"
        rows.append((one.name, name, digits(value), theirs, one.better))
    table(("set", "our best", "", "best published", "better"), rows)
    if missing:
        print(
            f"\nNot there, so left out: {', '.join(missing)}. Name their folder: --data."
        )
    places = f"Tables, and what is wrong with which number, are in {folder}/page.md."
    print(f"\n{time.perf_counter() - begin:.0f} s. {places}")
    return 0
