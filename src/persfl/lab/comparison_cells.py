"""One data set, one seed: every method's error on every device.

Cells run in parallel and are kept as they come.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from persfl.errors import InputError
from persfl.files import write_whole
from persfl.lab.comparison_sets import DataSet, Table
from persfl.lab.jobs import finished_jobs
from persfl.lab.line_up import HARDLY, line_up, on_terms
from persfl.lab.row_splits import RowSplit
from persfl.lab.standings import CellRecord
from persfl.learners.named import learner_named
from persfl.learners.responses import respond_each
from persfl.methods import LocalTask
from persfl.types import Array, Learner
from persfl.units import Units

_FORM = 1  # of kept results
Measurements = dict[str, Any]  # of one cell, as plain values


@dataclass(frozen=True)
class Cell:
    """A data set and a seed, which decides on rows and on every draw of the methods."""

    data: DataSet | Table
    seed: int
    methods: tuple[str, ...]
    rounds: int = 100
    budget: int = 640

    @property
    def cost(self) -> float:
        """A rough number of seconds."""
        return self.data.cost

    def work(self) -> tuple[Measurements, float]:
        """The measurements as plain values, and the seconds of one core.

        By one thread, so that sums come out the same anywhere.
        """
        begin = time.process_time()
        with threadpool_limits(1):
            found = measurements(
                self.data.dealt(self.seed),
                self.methods,
                rounds=self.rounds,
                budget=self.budget,
                seed=self.seed,
            )
        seconds = time.process_time() - begin
        about = {
            "set": self.data.name,
            "seed": self.seed,
            "settings": self.data.settings,
        }
        about |= {"content": self.data.content}
        return about | found | {"total": round(seconds, 2)}, seconds


def measurements(
    dealt: RowSplit,
    methods: Sequence[str],
    *,
    rounds: int = 100,
    budget: int = 640,
    seed: int = 0,
) -> Measurements:
    """Per method and variant (units, setting): every device's error, and the seconds of one core.

    An error is the mean squared error over the label's variance in the rows learned from, or the
    share of wrong labels.

    >>> dealt = DataSet(name="txhousing", few=10).dealt(seed=0)
    >>> errors = measurements(dealt, ["local", "pooled"])["errors"]
    >>> {name: sorted(variants) for name, variants in errors.items()}
    {'local': ['centred', 'shared'], 'pooled': ['centred', 'shared']}
    >>> bool(np.mean(errors["pooled"]["centred"]) < np.mean(errors["local"]["shared"]))
    True
    """
    learn, judge, classes, order = dealt
    learner: Learner = learner_named("linear", classes=classes)
    errors: dict[str, dict[str, list[float]]] = {name: {} for name in methods}
    seconds: dict[str, dict[str, float]] = {name: {} for name in methods}
    everybody = line_up()
    for kind in ("shared", "centred"):
        units = Units.of(learn, kind, labels=not classes)
        task = LocalTask(
            units.inside(learn), learner, seed, classes=classes, known=order
        )
        for name in methods:
            for setting, method in everybody[name].items():
                kinds = method.needs().units
                # Shrinking is a matter of classes: without any, leaving rows out knows best.
                if kind not in kinds or (setting == HARDLY and not classes):
                    continue
                both = "both" if "centred" not in kinds else kind  # it looks at both
                begin = time.process_time()
                models = on_terms(method, rounds=rounds, budget=budget).run(task).models
                variant = ", ".join(word for word in (both, setting) if word)
                seconds[name][variant] = round(time.process_time() - begin, 3)
                each = _errors(learner, models, units, dealt)
                errors[name][variant] = [float(f"{error:.7g}") for error in each]
    rows = {"learn": len(learn.y), "judge": len(judge.y)}
    about = {
        "devices": [str(name) for name in learn.ids],
        "rows": rows,
        "classes": classes,
    }
    return about | {"errors": errors, "seconds": seconds}


def _errors(learner: Learner, models: Array, units: Units, dealt: RowSplit) -> Array:
    """(devices,) errors on the rows to judge by."""
    learn, judge, classes, _ = dealt
    owner = judge.owner
    answers = respond_each(
        learner, models, units.features(judge.X, owner), owner, classes
    )
    if classes:
        missed = (answers.argmax(axis=1) != judge.y) + 0.0
    else:
        variance = max(float(learn.y.var()), np.finfo(float).tiny)
        missed = (units.outside(answers, owner) - judge.y) ** 2 / variance
    sums = np.bincount(owner, weights=missed * judge.weight, minlength=len(judge))
    return np.asarray(sums / judge.total)


def run_cells(
    cells: Sequence[Cell],
    *,
    jobs: int = 1,
    path: Path | None = None,
    done: Callable[[Measurements], object] | None = None,
) -> list[Measurements]:
    """Do what is not in the file at `path` yet, longest first, and return all in order.

    Each cell is kept in the file as it comes.
    """
    first = cells[0]
    about = {"form": _FORM, "code": code(), "methods": list(first.methods)}
    about |= {"rounds": first.rounds, "budget": first.budget}
    kept = {} if path is None else _kept(path, about)

    contents = {cell.data.name: cell.data.content for cell in cells}

    def missing(cell: Cell) -> bool:
        known = kept.get((cell.data.name, cell.seed), {})
        same = known.get("content") == contents[cell.data.name]
        return not same or known.get("settings") != _plain(cell.data.settings)

    todo = [cell for cell in cells if missing(cell)]
    for found, _ in finished_jobs(todo, jobs=jobs):
        kept[found["set"], found["seed"]] = _plain(found)
        if path is not None:
            text = json.dumps(about | {"cells": list(kept.values())}) + "\n"
            write_whole(path, text.encode())
        if done is not None:
            done(found)
    return [kept[cell.data.name, cell.seed] for cell in cells]


def read_cells(path: Path) -> dict[str, Any]:
    """A file of kept results."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        what = f"{str(path)!r} could not be read as kept results"
        raise InputError(f"{what}: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("cells"), list):
        what = "holds no results of a comparison"
        raise InputError(f"{str(path)!r} {what}. Choose another file.")
    return content


def _kept(path: Path, about: CellRecord) -> dict[tuple[str, int], Measurements]:
    if not path.exists():
        return {}
    content = read_cells(path)
    other = next(
        (key for key, value in about.items() if content.get(key) != value), None
    )
    if other is not None:
        what = f"holds results of other {other}, not to be mixed with these"
        raise InputError(f"{str(path)!r} {what}. Choose another --out.")
    return {(cell["set"], cell["seed"]): cell for cell in content["cells"]}


def _plain(value: CellRecord) -> dict[str, Any]:
    """As it reads when it comes back from a file."""
    return dict(json.loads(json.dumps(value)))


@cache
def code() -> str:
    """A fingerprint of the package's source: results of other code are other results."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        digest.update(
            path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes()
        )
    return digest.hexdigest()[:20]
