"""Every method on equal terms: `persfl compare --seeds ...` on a table, `persfl run` on a spec."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from persfl.checks import many, percent, whole
from persfl.commands.progress import bar, json_number, table
from persfl.errors import InputError, need
from persfl.estimators.base import Asked
from persfl.files import write_whole
from persfl.lab import comparison_tables as tables
from persfl.lab.comparison_cells import Cell
from persfl.lab.comparison_sets import Table
from persfl.lab.comparison_specs import chosen_methods, entries_of, load_comparison
from persfl.lab.kept_cells import run_cells
from persfl.lab.line_up import line_up
from persfl.lab.standings import (
    REFERENCE,
    Standing,
    by_set,
    least,
    mean_regret,
    standings,
    with_equal_questions,
)
from persfl.methods import Blend
from persfl.spreadsheets import write_csv
from persfl.training.state import STEP_ROUNDS

SEEDS = 5
QUESTIONS = 100  # that everybody asks of a device, where budgets are equal


def is_over_seeds(chosen: argparse.Namespace) -> bool:
    """Whether all methods are to be compared, over seeds."""
    words = (chosen.few, chosen.seeds, chosen.methods, chosen.reference)
    return any(word is not None for word in words)


def compare_methods(chosen: argparse.Namespace, name: str, asked: Asked) -> int:
    """All methods on one table."""
    if chosen.model != "linear":
        need = "--few, --seeds and --methods compare linear models"
        raise InputError(f"{need}. Leave them out with --model {chosen.model}.")
    reference = entries_of(chosen.reference or REFERENCE)[0]
    methods = chosen_methods(chosen.methods or list(line_up()), reference)
    devices = asked.rows
    classes = asked.schema.labels.count
    dealing = {"few": chosen.few, "share": chosen.holdout, "order": asked.order}
    rows = Table(name, devices, classes, **dealing)
    rounds = (
        STEP_ROUNDS
        if chosen.rounds in (None, "auto")
        else whole("--rounds", chosen.rounds, least=1)
    )
    seeds = range(chosen.seed, chosen.seed + (chosen.seeds or SEEDS))
    cells = [
        Cell(rows, seed, methods, rounds, chosen.budget or Blend().budget, QUESTIONS)
        for seed in seeds
    ]
    live = not chosen.json and sys.stderr.isatty()
    jobs = whole("--jobs", chosen.jobs, least=1)
    found = run_cells(cells, jobs=jobs, done=_say_seed if live else None)
    standing = standings(found, reference)
    if chosen.out:
        _write(Path(chosen.out), found, standing, verbatim=chosen.verbatim)
    if chosen.json:
        print(json.dumps({"event": "done", "methods": _plain(standing)}))
        return 0
    kept = len(found[0]["devices"])
    left = len(devices) - len(found[0]["devices"])
    what = (
        "share of wrong labels"
        if classes
        else "mean squared error over the label's variance"
    )
    learn = found[0]["rows"]["learn"]
    judge = found[0]["rows"]["judge"]
    small = f" ({many(left, 'device')} with too few rows left out)" if left else ""
    others = f"{judge:,} {'later ones' if asked.order.ordered else 'others'}"
    waited = f"{time.perf_counter() - chosen.began:.0f} s"
    used = f"{many(learn, 'row')} to learn from and {others} to judge by{small}"
    print(
        f"{what}; {many(kept, 'device')}, {used}; {many(len(cells), 'seed')}, {waited}.\n"
    )
    show(standing, reference, found)
    failed = tables.failures({name: found})
    if failed:
        print(f"\nLeft out:\n{failed}")
    if chosen.out:
        print(f"\nEvery device's errors are in {chosen.out}.")
    return 0


def _say_seed(cell: dict[str, Any]) -> None:
    print(f"seed {cell['seed']} done in {cell['total']:.0f} s", file=sys.stderr)


def tried(cells: list[dict[str, Any]], method: str) -> float:
    """How many settings a method's were chosen of."""
    return float(max(cell["picked"][method]["tried"] for cell in cells))


def _asked(cells: list[dict[str, Any]], method: str) -> str:
    """What a device is asked and sends, on average."""
    mine = [cell["picked"][method] for cell in cells]
    questions = sum(one["questions"] for one in mine) / len(mine)
    size = sum(one["kilobytes"] for one in mine) / len(mine)
    leaves = mine[0]["leaves"]
    return f"{questions:.3g}, {size:.3g}" if leaves == "answers" else leaves


def show(
    standing: dict[str, Standing], reference: str, cells: list[dict[str, Any]]
) -> None:
    """Where every method stands, best first."""
    equal = standings(with_equal_questions(cells), reference)
    rows = [
        (
            one.method,
            f"{one.error:.4f}",
            tables.often_chosen(cells, one.method),
            f"{tried(cells, one.method):g}",
            tables.removed(one),
            f"{percent(one.better)} / {percent(one.worse)}"
            if one.method != reference
            else "",
            tables.signed(one.regret),
            _asked(cells, one.method),
            tables.short(equal[one.method].error),
            f"{one.seconds:.1f}",
        )
        for one in sorted(standing.values(), key=lambda one: one.error)
    ]
    head = (
        "method",
        "error",
        "units, setting",
        "tried",
        f"removed by {reference} (95 % interval)",
        "devices better / worse off",
        "regret",
        "questions, kB",
        "error with equal questions",
        "seconds",
    )
    table(head, rows)
    share = f"the typical share of a method's error that {reference} removes, device by device"
    print(f"\nRemoved: {share}; its interval is over seeds.")
    regret = f"log(error / least error of all but {reference})"
    print(
        "Settings and units were chosen on a hidden quarter of the rows to learn from; tried: of"
        " how many."
    )
    print(
        "Questions: answers of a device, or what leaves it once; equal: with"
        f" {QUESTIONS} of them for everybody, as far as rounds can be made to fit."
    )
    print(f"Better off: devices with less error by {reference}. Regret: {regret}.")


def _write(
    path: Path,
    cells: list[dict[str, Any]],
    standing: dict[str, Standing],
    *,
    verbatim: bool,
) -> None:
    """Everything as .json, or every device's error by the variants that counted as .csv."""
    if path.suffix == ".json":
        text = json.dumps({"methods": _plain(standing), "cells": cells}) + "\n"
        write_whole(path, text.encode())
        return
    parts = []
    for cell in cells:
        errors = {
            name: cell["errors"][name][one.variant] for name, one in standing.items()
        }
        parts.append(
            pd.DataFrame({"seed": cell["seed"], "device": cell["devices"]} | errors)
        )
    write_csv(pd.concat(parts, ignore_index=True), path, verbatim=verbatim)


def _plain(standing: dict[str, Standing]) -> list[dict[str, Any]]:
    """JSON has no NaN."""
    found = []
    for one in standing.values():
        found.append({key: json_number(value) for key, value in one._asdict().items()})
    return found


def run_comparison(chosen: argparse.Namespace, changes: dict[str, Any]) -> int:
    """All methods on the data sets of a spec."""
    from persfl.lab.figure_files import results_folder
    from persfl.lab.result_pages import comparison_page

    if not chosen.numbers:
        need("matplotlib", extra="report", why="drawing figures")
    spec = load_comparison(chosen.spec, changes)
    spec = spec.quick() if chosen.quick else spec
    rounds = chosen.rounds or spec.rounds
    seeds = chosen.runs or spec.seeds
    rounds = whole("--rounds", rounds, least=1)
    seeds = whole("--runs", seeds, least=1)
    spec = replace(spec, rounds=rounds, seeds=seeds)
    spec, missing = spec.only(chosen.only).there(chosen.data)
    folder = results_folder(Path(chosen.out), spec.name)
    cells = spec.cells(chosen.seed)
    begin = time.perf_counter()
    jobs = whole("--jobs", chosen.jobs, least=1)
    kept = "What is done is kept: the same command goes on."
    print(f"{spec.estimate(jobs)} {kept}", file=sys.stderr)
    with bar(chosen.numbers, total=len(cells), disable=None, leave=False) as shown:
        path = folder / "results.json"
        found = run_cells(cells, jobs=jobs, path=path, done=lambda _: shown.update(1))
    sets = by_set(found)
    page = comparison_page(spec.title or spec.name, spec.about, sets, spec.reference)
    write_whole(folder / "page.md", page.encode())
    if not chosen.numbers:
        from persfl.lab.drawings import draw_regrets, save

        save(draw_regrets(sets, spec.reference), folder / "figure.png", dpi=130)
    rows = []
    for name, some in sets.items():
        seconds = sum(cell["total"] for cell in some) / len(some)
        line = _line(name, standings(some, spec.reference), spec.reference)
        rows.append((*line, f"{seconds:.0f}"))
    regret = "regret (95 % interval over seeds)"
    table(
        ("set", "best rival", "error", spec.reference, regret, "seconds per seed"), rows
    )
    regret = tables.signed_interval(*mean_regret(sets, spec.reference, spec.reference))
    over = f"over {len(sets)} sets and {spec.seeds} seeds from {chosen.seed}"
    print(f"\nMean regret {regret} {over}.")
    if missing:
        what = "Name the folder of their files with --data."
        print(f"Not there, so left out: {', '.join(missing)}. {what}")
    places = f"Tables are in {folder}/page.md, every device's errors in {folder}/results.json."
    print(f"{time.perf_counter() - begin:.0f} s. {places}")
    return 0


def _line(name: str, standing: dict[str, Standing], reference: str) -> tuple[str, ...]:
    mine = standing[reference]
    rival = standing[least(standing, reference)]
    regret = tables.signed_interval(*mine.regret_interval)
    return name, rival.method, f"{rival.error:.4f}", f"{mine.error:.4f}", regret
