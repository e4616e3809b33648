"""One data set, one seed: every method's error on every device.

Cells run in parallel and are kept as they come.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from persfl.errors import InputError, PersflError
from persfl.files import write_whole
from persfl.lab.comparison_sets import DataSet, Table
from persfl.lab.counted_questions import AskingCost
from persfl.lab.jobs import finished_jobs
from persfl.lab.line_up import line_up
from persfl.lab.row_splits import RowSplit
from persfl.lab.setting_choice import (
    EqualTerms,
    candidates,
    choose,
    device_errors,
    linear_learner,
)
from persfl.lab.standings import CHOSEN, CellRecord
from persfl.training.state import STEP_ROUNDS
from persfl.types import Array

_FORM = 2  # of kept results
MOST_ROUNDS = 4  # times its own that a method gets, to ask as much as others
Measurements = dict[str, Any]  # of one cell, as plain values


@dataclass(frozen=True)
class Cell:
    """A data set and a seed, which decides on rows and on every draw of the methods."""

    data: DataSet | Table
    seed: int
    methods: tuple[str, ...]
    rounds: int = 100
    budget: int = 640
    questions: int = 100

    @property
    def cost(self) -> float:
        """A rough number of seconds of one core: more methods and more rounds take longer."""
        share = len(self.methods) / len(line_up())
        return self.data.cost * share * (0.2 + 0.8 * self.rounds / STEP_ROUNDS)

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
                questions=self.questions,
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
    questions: int = 100,
    seed: int = 0,
) -> Measurements:
    """Per method every device's error with the settings that were chosen on rows to learn from,
    what it asked, and its errors with as many questions as everybody else.

    An error is the mean squared error over the label's variance in the rows learned from, or the
    share of wrong labels. A method that cannot run here has none, and `failed` says why.

    >>> dealt = DataSet(name="txhousing", few=10).dealt(seed=0)
    >>> found = measurements(dealt, ["local", "pooled"])
    >>> found["picked"]["pooled"]["variant"], found["picked"]["pooled"]["tried"]
    ('centred', 2)
    >>> import numpy as np
    >>> errors = {name: np.mean(each[CHOSEN]) for name, each in found["errors"].items()}
    >>> bool(errors["pooled"] < errors["local"])
    True
    """
    learn, judge, classes, _ = dealt
    learner = linear_learner(classes)
    terms = EqualTerms(rounds, budget, seed)
    errors: dict[str, dict[str, list[float]]] = {}
    seconds: dict[str, dict[str, float]] = {}
    picked: dict[str, dict[str, Any]] = {}
    failed: dict[str, str] = {}
    everybody = line_up()
    for name in methods:
        some = candidates(everybody[name], classes=classes)
        try:
            chosen = choose(some, dealt, learner, terms)
            begin = time.process_time()
            answer = terms.answer(chosen.candidate, dealt, learner)
        except PersflError as error:  # one that cannot does not end a comparison of all
            failed[name] = str(error)
            continue
        seconds[name] = {CHOSEN: round(time.process_time() - begin, 3)}
        errors[name] = {CHOSEN: _short(device_errors(answer, dealt, learner))}
        picked[name] = {
            "variant": chosen.candidate.variant,
            "tried": chosen.tried,
            "questions": float(f"{answer.cost.questions:.4g}"),
            "messages": float(f"{answer.cost.messages:.4g}"),
            "kilobytes": float(f"{answer.cost.kilobytes:.4g}"),
            "leaves": answer.cost.leaves,
        }
        same = equal_rounds(answer.cost, rounds, questions)
        if same != rounds:
            fair = replace(terms, rounds=same)
            answer = fair.answer(chosen.candidate, dealt, learner)
        equal = _short(device_errors(answer, dealt, learner))
        asked = float(f"{answer.cost.questions:.4g}")
        picked[name] |= {"equal": equal, "equal_questions": asked}
    rows = {"learn": len(learn.y), "judge": len(judge.y)}
    about = {
        "devices": [str(name) for name in learn.ids],
        "rows": rows,
        "classes": classes,
    }
    found = {"errors": errors, "seconds": seconds, "picked": picked, "failed": failed}
    return about | found


def equal_rounds(cost: AskingCost, rounds: int, questions: int) -> int:
    """How many rounds have about so many questions; a method that is not asked round by round
    has as many as it has, and none has more than four times its own.

    >>> equal_rounds(AskingCost(20.0, 40.0, 1.0, "answers"), 100, 100)
    400
    """
    if cost.leaves != "answers":
        return rounds
    fair = round(rounds * questions / cost.questions)
    return min(max(fair, 1), MOST_ROUNDS * rounds)


def _short(errors: Array) -> list[float]:
    return [float(f"{error:.7g}") for error in errors]


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
    about |= {"questions": first.questions}
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
