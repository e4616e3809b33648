"""What the constants of the default rule earn: each changed alone, everything else left as it is;
the mean change of the log error over the sets of `benchmarks/blend.py`, and of the time of fits.

    python benchmarks/blend_constants.py [--of numbers | classes] [--seeds 2] [--first 5000]
        [--jobs 2] [--only EXPECTED] [--section few,time] [--minutes 3]
        [--data FOLDER] [--published FOLDER] [--out kept.json]

Prints the tables of docs/blend.md. A change above 0 is a loss, so that the constant earns its
place; with its standard error over sets. Numbers: sections few, nonlinear, loud and time, squared
errors. Classes: their sets in the sections published and sets, log loss. After `--minutes` it
prints what it has; seeds are done one after the other, so that is whole ones but for the last.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np
from measuring import Judged, errors_of
from tasks import OF_CLASSES, Task, sections

from persfl import PersonalizedClassifier
from persfl.lab.jobs import finished_jobs

MIXED = "persfl.methods.mixed."
SECTIONS = {
    "numbers": ("few", "nonlinear", "loud", "time"),
    "classes": ("published", "sets"),
}
Folders = tuple[Path | None, Path | None]


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


OF_NUMBERS = (
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
        (1, 10, 30),
        "more change nothing that hidden rows could tell",
    ),
    Constant(
        "rows for trees",
        _mixed("linear_rule.BOOSTED"),
        (50, 200, 800),
        "few devices that are alike lose by trees of fewer rows",
    ),
    Constant(
        "standard errors by which trees of fewer help",
        _mixed("linear_rule.CLEARLY"),
        (0.0, 4.0),
        "50 to 99 rows cannot tell trees from luck",
    ),
    Constant(
        "hidden rows that judge trees",
        _mixed("linear_rule.ENOUGH"),
        (100, 10**9),
        "growing trees takes most of the time",
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


OF_CLASS_RULE = (
    Constant(
        "rows' worth of belief in expected shares",
        _mixed("log_pool.EVEN"),
        (1.0, 2.0, 10.0),
        "few rows cannot choose among eleven offers",
    ),
    Constant(
        "of these for one model for all",
        _mixed("class_rule.FLEET"),
        (0.0, 0.3, 0.9),
        "fleets of few rows cannot tell which personal models are good",
    ),
    Constant(
        "missing classes' worth of belief that rows were drawn",
        _mixed("class_hidden.DRAWN"),
        (0.5, 8.0, 1e9),
        "rows of each class by design",
    ),
    Constant(
        "variances of coefficients, in the fleet's",
        _mixed("class_offers.PULLS"),
        ((1.0, 10.0, 100.0), (10.0,), (100.0,)),
        "personal, and any",
    ),
    Constant(
        "the same where neighbours are fitted",
        _mixed("class_offers.MIDDLE"),
        (1.0, 100.0),
        "hidden rows choose",
    ),
    Constant(
        "the same about a centre",
        _mixed("class_offers.NEAR"),
        (0.1, 1.0),
        "kinds are narrower than fleets",
    ),
    Constant("rounds of near", _mixed("class_near.ROUNDS"), (3, 12), "time"),
    Constant(
        "likeliest centres", _mixed("class_near.LIKELIEST"), (3, 30), "time of a round"
    ),
    Constant(
        "devices fitted together", _mixed("class_alike.LIKEST"), (3, 16), "few rows"
    ),
    Constant(
        "how much one clear likeness counts",
        _mixed("class_alike.SHARP"),
        (1.0, 8.0),
        "one of three is enough",
    ),
    Constant(
        "share on the first fold below which trees are left out",
        _mixed("class_trees.WORTH"),
        (0.0, 0.1),
        "time",
    ),
    Constant(
        "how sure stages of boosting are",
        _mixed("class_trees.CALMER"),
        (0.3, 1.0),
        "late stages make few mistakes and are too sure",
    ),
)
CONSTANTS = {"numbers": OF_NUMBERS, "classes": OF_CLASS_RULE}


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

    of: str
    section: str
    task: str
    seed: int
    constant: int
    other: int
    folders: Folders

    @property
    def cost(self) -> float:
        """Seeds one after the other."""
        return -float(self.seed)

    def work(self) -> tuple[tuple[Try, float, float], float]:
        """The log error, and seconds of one core for the fit."""
        begin = time.process_time()
        task = sections(*self.folders)[self.section].tasks[self.task](self.seed)
        places: tuple[str, ...] = ()
        value = None
        if self.constant >= 0:
            constant = CONSTANTS[self.of][self.constant]
            places = constant.places
            value = constant.others[self.other]
        measure = log_loss if task.classes else squared
        with changed(places, value):
            error, seconds = measure(task, self.seed)
        return (self, float(np.log(error)), seconds), time.process_time() - begin


def squared(task: Task, seed: int) -> tuple[float, float]:
    """The mean over devices, and seconds."""
    found = errors_of(task, lambda: Judged().fit(task, seed))
    return float(np.mean(found["errors"])), float(found["seconds"])


def log_loss(task: Task, seed: int) -> tuple[float, float]:
    """Of the rows to judge by, and seconds; a chance below a millionth is as bad as that."""
    begin = time.process_time()
    model = PersonalizedClassifier(holdout=0, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(task.learn.X, task.learn.y.astype(int), devices=task.learn.g)
    seconds = time.process_time() - begin
    chance = model.predict_proba(task.judge.X, devices=task.judge.g)
    right = model.classes_ == task.judge.y.astype(int)[:, None]
    said = np.maximum((chance * right).sum(axis=1), 1e-6)
    return float(-np.log(said).mean()), seconds


def shown(value: Any) -> str:
    """A value in a table."""
    if isinstance(value, np.ndarray):
        return f"{value[0]:g} to {value[-1]:g}" if len(value) > 1 else f"{value[0]:g}"
    if isinstance(value, tuple):
        return " and ".join(f"{each:g}" for each in value)
    return "all" if value == 10**9 else f"{value:g}"


def arguments() -> argparse.Namespace:
    """What was asked for."""
    asked = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    asked.add_argument("--of", choices=tuple(CONSTANTS), default="numbers")
    asked.add_argument("--seeds", type=int, default=2)
    asked.add_argument("--first", type=int, default=5000)
    asked.add_argument("--jobs", type=int, default=1)
    asked.add_argument("--section", default="")
    asked.add_argument("--only", default="", help="a part of a constant's place")
    asked.add_argument("--minutes", type=float, default=1e9)
    asked.add_argument("--data", type=Path)
    asked.add_argument("--published", type=Path)
    asked.add_argument("--out", type=Path, help="what was found, as it comes")
    return asked.parse_args()


def tries_of(given: argparse.Namespace, chosen: Sequence[int]) -> Iterator[Try]:
    """Every set and seed, as it is and with each constant changed."""
    folders = (given.data, given.published)
    known = sections(*folders)
    names = given.section.split(",") if given.section else SECTIONS[given.of]
    every = CONSTANTS[given.of]
    for seed in range(given.first, given.first + given.seeds):
        for name in names:
            for task in known[name].tasks:
                if (task in OF_CLASSES) != (given.of == "classes"):
                    continue
                yield Try(given.of, name, task, seed, -1, 0, folders)
                for k in chosen:
                    for m in range(len(every[k].others)):
                        yield Try(given.of, name, task, seed, k, m, folders)


Found = dict[tuple[int, int], dict[tuple[str, int], tuple[float, float]]]


def measured(tries: Sequence[Try], given: argparse.Namespace) -> Found:
    """Log errors and seconds, by what is changed, then by set and seed."""
    until = time.monotonic() + 60 * given.minutes
    found: Found = {}
    kept = []
    for (one, error, seconds), _ in finished_jobs(tries, jobs=given.jobs):
        here = found.setdefault((one.constant, one.other), {})
        here[one.task, one.seed] = (error, seconds)
        kept.append([one.task, one.seed, one.constant, one.other, error, seconds])
        if given.out is not None and len(kept) % 20 == 0:
            given.out.write_text(json.dumps(kept))
        if time.monotonic() > until:
            break
    return found


def change(found: Found, at: tuple[int, int]) -> str:
    """The mean over sets of the mean over seeds, its standard error, and the time."""
    usual, other = found[-1, 0], found.get(at, {})
    both = [key for key in other if key in usual]
    sets = dict.fromkeys(task for task, _ in both)
    moved = [
        np.mean([other[key][0] - usual[key][0] for key in both if key[0] == task])
        for task in sets
    ]
    if len(moved) < 2:
        return "not measured"
    unsure = np.std(moved, ddof=1) / len(moved) ** 0.5
    longer = sum(other[key][1] for key in both) / sum(usual[key][1] for key in both)
    return f"{np.mean(moved):+.4f} ({unsure:.4f}), time x {longer:.2f}"


def main() -> None:
    """Measure, and print the table."""
    given = arguments()
    every = CONSTANTS[given.of]
    chosen = [
        k for k, one in enumerate(every) if any(given.only in p for p in one.places)
    ]
    tries = list(tries_of(given, chosen))
    found = measured(tries, given)
    done = sum(map(len, found.values()))
    print(f"{done} of {len(tries)} fits, seeds from {given.first}\n")
    print("| constant | where | value | change of the log error, if | why |")
    print("|---|---|---|---|---|")
    for k in chosen:
        one = every[k]
        told = [
            f"{shown(other)}: {change(found, (k, m))}"
            for m, other in enumerate(one.others)
        ]
        where = one.places[0].removeprefix(MIXED)
        where = where.removeprefix("persfl.evaluation.")
        text = "; ".join(told) or "sets here are smaller"
        print(f"| {one.name} | `{where}` | {shown(one.value)} | {text} | {one.why} |")


if __name__ == "__main__":
    main()
