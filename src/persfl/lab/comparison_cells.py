"""One data set, one seed: every method's error on every device."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from persfl.errors import PersflError
from persfl.lab.comparison_sets import DataSet, Table
from persfl.lab.counted_questions import AskingCost
from persfl.lab.line_up import line_up
from persfl.lab.row_splits import RowSplit
from persfl.lab.setting_choice import (
    EqualTerms,
    candidates,
    choose,
    device_errors,
    linear_learner,
)
from persfl.lab.standings import CHOSEN
from persfl.training.state import STEP_ROUNDS
from persfl.types import Array

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
    def key(self) -> tuple[str, int]:
        """What it goes by among others."""
        return self.data.name, self.seed

    @property
    def cost(self) -> float:
        """A rough number of seconds of one core: more methods and more rounds take longer."""
        share = len(self.methods) / len(line_up())
        return self.data.cost * share * (0.2 + 0.8 * self.rounds / STEP_ROUNDS)


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
    >>> found = measurements(dealt, ["own", "pooled"])
    >>> found["picked"]["pooled"]["variant"], found["picked"]["pooled"]["tried"]
    ('centred', 2)
    >>> import numpy as np
    >>> errors = {name: np.mean(each[CHOSEN]) for name, each in found["errors"].items()}
    >>> bool(errors["pooled"] < errors["own"])
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
