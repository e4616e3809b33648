"""Every method on equal terms, on real tables and made-up devices, and beside it what is asked of
blend.

    python benchmarks/blend.py [--data FOLDER] [--seeds 3] [--first 1000] [--only txhousing,pb52]
    [--jobs 2] [--out table.json]

The sets, rows and methods are those of the spec `compare` (`persfl run compare` does the same and
writes a page). Housing comes with the package; with --data a folder that has chickweight.csv,
household.npz, wisdm.npz and pb52.csv is used too. Every cell (a set and a seed) is kept in --out as
it comes, so the same command goes on where it was cut. Rivals named by what is asked: local,
pooled, clustered, fine-tuned, paper, each in shared or centred units, whichever is better in
hindsight.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    # before numpy: cells are parallel, not what is inside them
    os.environ.setdefault(_name, "1")

from persfl import PersonalizedRegressor
from persfl.lab.comparison_cells import run_cells
from persfl.lab.comparison_specs import chosen_methods, load_comparison
from persfl.lab.comparison_tables import (
    regret_table,
    removed_table,
    seconds_line,
    signed,
    signed_interval,
)
from persfl.lab.standings import by_set, least, mean_regret, standings
from persfl.sources import clustered_regression

NAMED = ("local", "pooled", "clustered", "fine-tuned", "paper", "blend")
BETTER = ("txhousing", "chickweight", "household", "wisdm", "relabelled")
NEAR = ("pb52", "label-shifted")

Cells = Mapping[str, Sequence[Mapping[str, Any]]]


def large() -> None:
    """Time a whole fit: trial run and final run."""
    rows = clustered_regression(
        n=1000, clusters=5, rows=30, features=10, noise=0.5, seed=0
    )
    begin = time.perf_counter()
    PersonalizedRegressor(method="blend").fit(rows.X, rows.y, devices=rows.owner)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"1,000 devices x 30 rows x 10 features: {time.perf_counter() - begin:.0f} s, at most"
        f" {peak:.1f} GiB"
    )


def against(cells: Cells, methods: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """The same cells with some of the methods."""
    return {
        name: [
            {
                **cell,
                "errors": {m: e for m, e in cell["errors"].items() if m in methods},
            }
            for cell in some
        ]
        for name, some in cells.items()
    }


def asked(cells: Cells) -> Iterator[tuple[bool, str]]:
    """What is asked of blend, whether it holds, and what was measured; the rivals are those it
    is asked to beat.
    """
    named = against(cells, NAMED)
    found = {name: standings(some) for name, some in named.items()}
    for name in (*BETTER, *NEAR):
        if name not in found:
            continue
        mine, rival = found[name]["blend"], found[name][least(found[name], "blend")]
        most = 0.0 if name in BETTER else 0.05
        text = (
            "less error than every rival"
            if name in BETTER
            else "at most 5 % more error than the best rival"
        )
        yield (
            (
                mine.error / rival.error - 1 < most
                if name in BETTER
                else mine.error / rival.error - 1 <= most
            ),
            (
                f"{name:16} asked: {text}. measured: {mine.error / rival.error - 1:+.1%}"
                f" ({rival.method}, {rival.variant} {rival.error:.4f}; blend {mine.error:.4f};"
                f" regret {signed_interval(mine.regret, mine.regret_low, mine.regret_high)})"
            ),
        )
    middle = mean_regret(named)
    yield (
        middle[0] <= 0,
        (
            f"{'all sets':16} asked: mean regret at most 0. measured: {signed_interval(*middle)}"
            f" over {len(found)} sets"
        ),
    )
    for name, table in found.items():
        more = table["blend"].error / table["local"].error - 1
        yield (
            more <= 0.05,
            f"{name:16} asked: at most 5 % more error than local. measured: {more:+.1%}",
        )


def main() -> None:
    """Measure what is not kept yet, and print the tables."""
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--data", type=Path, help="folder with further tables")
    made.add_argument("--seeds", type=int, default=3)
    made.add_argument("--first", type=int, default=1000, help="the first seed")
    made.add_argument("--only", default="", help="some of the data sets")
    made.add_argument(
        "--methods",
        default="",
        help="some of the methods (default all; those that are asked about always)",
    )
    made.add_argument("--jobs", type=int, default=1, help="parallel processes")
    made.add_argument(
        "--out", type=Path, help="a .json file in which every cell is kept as it comes"
    )
    made.add_argument(
        "--large",
        action="store_true",
        help="only time a fit of 1,000 devices with 30 rows and 10 features",
    )
    chosen = made.parse_args()
    if chosen.large:
        large()
        return
    spec = replace(load_comparison("compare"), seeds=chosen.seeds)
    if chosen.methods:
        spec = replace(
            spec, methods=chosen_methods([*NAMED, *chosen.methods.split(",")])
        )
    spec, missing = spec.only([name for name in chosen.only.split(",") if name]).there(
        chosen.data
    )
    begin = time.perf_counter()
    done = run_cells(
        spec.cells(chosen.first),
        jobs=chosen.jobs,
        path=chosen.out,
        done=lambda cell: print(
            f"{cell['set']} seed {cell['seed']}: {cell['total']:.0f} s", flush=True
        ),
    )
    cells = by_set(done)
    print(
        f"\n{regret_table(cells)}\n\nblend removes of the others'"
        f" error:\n\n{removed_table(cells)}\n"
    )
    for holds, text in asked(cells):
        print(f"{'PASS' if holds else 'FAIL'}  {text}")
    every = mean_regret(cells)
    print(
        f"\nAgainst all {len(spec.methods) - 1} methods the mean regret is"
        f" {signed_interval(*every)}; of each method:"
    )
    print(
        ", ".join(
            f"{name} {signed(mean_regret(cells, name)[0])}" for name in spec.methods
        )
    )
    print(
        f"\n{chosen.seeds} seeds from {chosen.first}. {seconds_line(cells)} This call:"
        f" {time.perf_counter() - begin:.0f} s."
    )
    if missing:
        print(f"Not there, so left out: {', '.join(missing)} (--data).")


if __name__ == "__main__":
    main()
