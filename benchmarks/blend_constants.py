"""What the constants of the default rule for numbers earn: each changed alone, everything else
left as it is; the mean change of the log error over the sets of `benchmarks/blend.py`.

    python benchmarks/blend_constants.py [--seeds 2] [--first 5000] [--jobs 2] [--only EXPECTED]
        [--section few,time]

Prints the table of docs/blend.md. A change above 0 is a loss, so that the constant earns its place;
with its standard error over sets. Sections few, nonlinear, loud and time, without folders of data.
"""

from __future__ import annotations

import argparse
import importlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np
from measuring import Judged, errors_of
from tasks import sections

from persfl.lab.jobs import finished_jobs

MIXED = "persfl.methods.mixed."
SECTIONS = ("few", "nonlinear", "loud", "time")


class Constant(NamedTuple):
    """Where it stands (every module that has it), other values, and why it is there; no other
    values where sets of this size never come to it.
    """

    name: str
    places: tuple[str, ...]
    others: tuple[Any, ...]
    why: str

    @property
    def value(self) -> Any:
        """As it is."""
        module, _, name = self.places[0].rpartition(".")
        return getattr(importlib.import_module(module), name)


def _mixed(*places: str) -> tuple[str, ...]:
    return tuple(MIXED + place for place in places)


CONSTANTS = (
    Constant(
        "parts of the rows",
        _mixed("hidden_rows.PARTS", "hidden_rows.NEVER"),
        (3, 10),
        "four fifths learn; fewer parts judge models of too few rows",
    ),
    Constant(
        "rows' worth of belief in expected shares",
        _mixed("stacking.EXPECTED"),
        (0.1, 30.0),
        "twelve rows cannot choose among five offers",
    ),
    Constant(
        "of these for one model for all",
        _mixed("stacking.SIMPLEST"),
        (0.2, 0.8),
        "fleets of 4 to 8 devices that are alike",
    ),
    Constant(
        "degrees of freedom of own noise",
        _mixed("own_noise.ALIKE"),
        (np.array([2.0]), np.array([1e9])),
        "the likeliest of 2 to 2,048; tried: 2 alone, and one noise for all",
    ),
    Constant(
        "steps of Sigma",
        _mixed("mixed_model.STEPS", "offers_from_sums.STEPS"),
        (10, 160),
        "they stop earlier where nothing moves by a thousandth",
    ),
    Constant(
        "the same in folds",
        _mixed("mixed_model.FOLD_STEPS", "offers_from_sums.FOLD_STEPS"),
        (3, 40),
        "folds begin where all rows ended",
    ),
    Constant(
        "steps of near",
        _mixed("near_centres.STEPS", "offers_from_sums.NEAR_STEPS"),
        (4, 30),
        "EM settles after some",
    ),
    Constant(
        "the same in folds",
        _mixed("near_centres.FOLD_STEPS", "offers_from_sums.NEAR_FOLD_STEPS"),
        (1, 10),
        "folds begin where all rows ended",
    ),
    Constant(
        "rows for trees",
        _mixed("linear_rule.BOOSTED"),
        (100, 800),
        "fewer rows grow nothing",
    ),
    Constant(
        "hidden rows that judge trees",
        _mixed("linear_rule.ENOUGH"),
        (100, 10**9),
        "growing trees takes most of the time",
    ),
    Constant(
        "share on the first fold below which trees are left out",
        _mixed("linear_rule.LEAST"),
        (0.0, 0.1),
        "time",
    ),
    Constant(
        "standard deviations for an order that nobody told",
        ("persfl.evaluation.row_course.CLEARLY",),
        (3.0, 6.0),
        "in 60 fleets in no order at most one was above",
    ),
    Constant(
        "rows of the median device for that",
        ("persfl.evaluation.row_course.LONG",),
        (4, 16),
        "two fifths of fewer rows are no past",
    ),
    Constant("centres", _mixed("panel_draw.CENTRES"), (), "time and memory"),
    Constant("columns", _mixed("principal_axes.WIDE"), (), "time and memory"),
    Constant("devices of the panel", ("persfl.methods.mixed.PANEL",), (), "time"),
)


@contextmanager
def changed(places: Sequence[str], value: Any) -> Iterator[None]:
    """With another value in all these modules."""
    before = []
    for place in places:
        module, _, name = place.rpartition(".")
        owner = importlib.import_module(module)
        before.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, old in before:
            setattr(owner, name, old)


@dataclass(frozen=True)
class Try:
    """A set and a seed with one constant at another value; -1 is the rule as it is."""

    section: str
    task: str
    seed: int
    constant: int
    other: int

    @property
    def cost(self) -> float:
        """All alike."""
        return 1.0

    def work(self) -> tuple[tuple[Try, float], float]:
        """The log error, and seconds of one core."""
        begin = time.process_time()
        task = sections(None, None)[self.section].tasks[self.task](self.seed)
        places: tuple[str, ...] = ()
        value = None
        if self.constant >= 0:
            places = CONSTANTS[self.constant].places
            value = CONSTANTS[self.constant].others[self.other]
        with changed(places, value):
            found = errors_of(task, lambda: Judged().fit(task, self.seed))
        error = float(np.log(np.mean(found["errors"])))
        return (self, error), time.process_time() - begin


def shown(value: Any) -> str:
    """A value in a table."""
    if isinstance(value, np.ndarray):
        return f"{value[0]:g} to {value[-1]:g}" if len(value) > 1 else f"{value[0]:g}"
    return "all" if value == 10**9 else f"{value:g}"


def main() -> None:
    """Measure, and print the table."""
    asked = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    asked.add_argument("--seeds", type=int, default=2)
    asked.add_argument("--first", type=int, default=5000)
    asked.add_argument("--jobs", type=int, default=1)
    asked.add_argument("--section", default=",".join(SECTIONS))
    asked.add_argument("--only", default="", help="a part of a constant's place")
    given = asked.parse_args()
    chosen = [
        k for k, one in enumerate(CONSTANTS) if any(given.only in p for p in one.places)
    ]
    known = sections(None, None)
    sets = [
        (name, task) for name in given.section.split(",") for task in known[name].tasks
    ]
    seeds = range(given.first, given.first + given.seeds)
    tries = [
        Try(section, task, seed, constant, other)
        for section, task in sets
        for seed in seeds
        for constant, other in [
            (-1, 0),
            *((k, m) for k in chosen for m in range(len(CONSTANTS[k].others))),
        ]
    ]
    found: dict[tuple[int, int], dict[tuple[str, str, int], float]] = {}
    for (one, error), _ in finished_jobs(tries, jobs=given.jobs):
        here = found.setdefault((one.constant, one.other), {})
        here[one.section, one.task, one.seed] = error
    usual = found[-1, 0]
    print("| constant | where | value | change of the log error, if | why |")
    print("|---|---|---|---|---|")
    for k in chosen:
        one = CONSTANTS[k]
        told = []
        for m, other in enumerate(one.others):
            moved = [
                np.mean([found[k, m][*each, s] - usual[*each, s] for s in seeds])
                for each in sets
            ]
            unsure = np.std(moved, ddof=1) / len(moved) ** 0.5
            told.append(f"{shown(other)}: {np.mean(moved):+.4f} ({unsure:.4f})")
        where = one.places[0].removeprefix(MIXED)
        where = where.removeprefix("persfl.evaluation.")
        text = ", ".join(told) or "sets here are smaller"
        print(f"| {one.name} | `{where}` | {shown(one.value)} | {text} | {one.why} |")


if __name__ == "__main__":
    main()
