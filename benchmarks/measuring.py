"""Who is measured and how: the rule beside its rivals on one task and seed, kept as it comes."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import multiprocessing
import queue
import resource
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rivals import RIVALS, Predict
from tasks import CLASSES, Task, sections

from persfl import PersonalizedClassifier, PersonalizedRegressor
from persfl.files import write_whole
from persfl.lab.comparison_cells import measurements
from persfl.lab.comparison_specs import load_comparison
from persfl.lab.kept_cells import code
from persfl.methods import METHODS
from persfl.sources import clustered_regression

HERE = Path(__file__).resolve().parent
Found = dict[str, Any]  # of one task and seed, as plain values
FORM = 2  # of kept results
PATIENCE = 120  # seconds of a timed fit
HINTS = ("ordered", "blocks", "time=")  # what a note on time would tell to set


# Who is measured


class Fit(NamedTuple):
    """Predictions, and what the fit says to a person."""

    predict: Predict
    notes: list[str]


@dataclass(frozen=True)
class Judged:
    """The rule that is measured: a method of the public API, or a class in a file."""

    method: str = "blend"
    rule: str = ""

    @property
    def label(self) -> str:
        """What it is called in tables and kept results."""
        return Path(self.rule).name if self.rule else self.method

    @property
    def code(self) -> str:
        """A fingerprint of its source."""
        if not self.rule:
            return code()
        return fingerprint(
            *Path(self.rule.partition(":")[0]).resolve().parent.glob("*.py")
        )

    def without_trees(self) -> dict[str, Any] | None:
        """How it is told to leave trees out; None where it cannot be."""
        if self.rule:
            return {"boost": False}
        return (
            {"method__trees": False}
            if "trees" in METHODS[self.method]().get_params()
            else None
        )

    def fit(
        self, task: Task, seed: int, *, told: bool = False, trees: bool = True
    ) -> Fit:
        """Learn from a task's rows."""
        settings = {} if trees else self.without_trees() or {}
        if self.rule:
            return self._by_rule(task, seed, task.told if told else "", settings)
        return self._by_api(task, seed, task.told if told else "", settings)

    def _by_rule(
        self, task: Task, seed: int, told: str, settings: Mapping[str, Any]
    ) -> Fit:
        made = loaded(self.rule)(ordered=told == "ordered", seed=seed, **settings)
        blocks = task.dates if told == "blocks" else None
        made.fit(task.learn.X, task.learn.y, task.learn.g, blocks=blocks)
        return Fit(made.predict, [])

    def _by_api(
        self, task: Task, seed: int, told: str, settings: Mapping[str, Any]
    ) -> Fit:
        kind = PersonalizedClassifier if task.classes else PersonalizedRegressor
        model = kind(method=self.method, holdout=0, random_state=seed).set_params(
            **settings
        )
        columns = list(task.columns) or [f"x{k}" for k in range(task.learn.X.shape[1])]
        frame = pd.DataFrame(task.learn.X, columns=columns)
        if told == "ordered":
            model.set_params(ordered=True)
        elif told == "blocks" and "blocks" in model.get_params():
            model.set_params(blocks="date")
            frame["date"] = task.dates
        labels = task.learn.y.astype(int) if task.classes else task.learn.y
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            model.fit(frame, labels, devices=task.learn.g)

        def predict(X: Any, g: Any) -> Any:
            return model.predict(pd.DataFrame(X, columns=columns), devices=g)

        return Fit(predict, [*model.notes_, *(str(one.message) for one in said)])


@cache
def loaded(rule: str) -> Callable[..., Any]:
    """The class in a file, by default the one called Blend2."""
    path, _, name = rule.partition(":")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"--rule {path!r} is no Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(Path(path).resolve().parent))
    spec.loader.exec_module(module)
    found: Callable[..., Any] = getattr(module, name or "Blend2")
    return found


def fingerprint(*paths: Path) -> str:
    """Of some files' content."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:20]


# Measuring, kept as it comes


@dataclass(frozen=True)
class Cell:
    """A task and a seed; the rivals, the rule, or both."""

    section: str
    name: str
    seed: int
    judged: Judged
    folders: tuple[Path | None, Path | None]
    parts: tuple[str, ...]  # "rivals", "judged": what is not kept yet

    @property
    def key(self) -> str:
        """Where it is kept."""
        return f"{self.section}/{self.name}/{self.seed}"

    @property
    def cost(self) -> float:
        """All alike."""
        return 1.0

    def work(self) -> tuple[tuple[Cell, Found], float]:
        """Errors of each device by method, with the seconds of one core."""
        begin = time.process_time()
        section = sections(*self.folders)[self.section]
        task = section.tasks[self.name](self.seed)
        found: Found = {}
        if "rivals" in self.parts:
            found["rivals"] = rivals_on(task, section.rivals)
        if "others" in self.parts:
            found["others"] = others_on(task, self.seed)
        if "judged" in self.parts:
            found["judged"] = self._judged(task)
        return (self, found), time.process_time() - begin

    def _judged(self, task: Task) -> Found:
        ways: dict[str, dict[str, bool]] = {"": {}}
        if task.told:
            ways["told"] = {"told": True}
        if self.section == "nonlinear" and self.judged.without_trees() is not None:
            ways["linear"] = {"trees": False}
        return {
            way: errors_of(
                task, lambda how=how: self.judged.fit(task, self.seed, **how)
            )
            for way, how in ways.items()
        }


def rivals_on(task: Task, names: Sequence[str]) -> Found:
    """Every rival's errors; the best published number is one of them."""
    learn = task.learn
    found = {}
    for name in CLASSES if task.classes else names:
        found[name] = errors_of(
            task,
            lambda rival=RIVALS[name]: Fit(rival(learn.X, learn.y, learn.g), []),
        )
    if task.known is not None:
        found["published"] = {"errors": [task.known]}
    return found


def others_on(task: Task, seed: int) -> Found:
    """Errors of persfl's other methods, each in all its variants."""
    spec = load_comparison("compare")
    names = [name for name in spec.methods if name != spec.reference]
    how = {"rounds": spec.rounds, "budget": spec.budget, "seed": seed}
    found = measurements(task.split, names, **how)["errors"]
    return {
        f"{name}, {variant}": {"errors": errors}
        for name, variants in found.items()
        for variant, errors in variants.items()
    }


def errors_of(task: Task, fit: Callable[[], Fit]) -> Found:
    """Fit, and judge."""
    begin = time.process_time()
    made = fit()
    seconds = time.process_time() - begin
    said = np.asarray(made.predict(task.judge.X, task.judge.g))
    hinted = any(word in note for note in made.notes for word in HINTS)
    each = [float(f"{error:.6g}") for error in task.errors(said)]
    return {"errors": each, "seconds": round(seconds, 2), "noted": hinted}


class Kept:
    """What was measured, by part and cell, in a file or for this call alone."""

    def __init__(
        self, path: Path | None, judged: Judged, keep_others: bool = False
    ) -> None:
        made = fingerprint(HERE / "tasks.py")
        self.path = path
        self.keep_others = keep_others
        self.codes = {
            "rivals": made + fingerprint(HERE / "rivals.py"),
            "others": made + code(),
            f"judged {judged.label}": made + judged.code,
        }
        self.judged = f"judged {judged.label}"
        self.content: dict[str, Any] = {"form": FORM}
        if path is not None and path.exists():
            self.content = json.loads(path.read_text(encoding="utf-8"))
            if self.content.get("form") != FORM:
                raise SystemExit(
                    f"{str(path)!r} holds other results. Choose another --out."
                )

    def part(self, part: str) -> dict[str, Found]:
        """Cells of the rivals, of persfl's other methods, or of the rule that is judged."""
        name = self.judged if part == "judged" else part
        kept: dict[str, Any] = self.content.setdefault(name, {"code": "", "cells": {}})
        if kept["code"] != self.codes[name] and not (
            name == "others" and self.keep_others
        ):
            kept.update(code=self.codes[name], cells={})
        cells: dict[str, Found] = kept["cells"]
        return cells

    def add(self, cell: Cell, found: Found) -> None:
        """Keep what a cell has measured."""
        for part, values in found.items():
            self.part(part)[cell.key] = values
        if self.path is not None:
            write_whole(self.path, (json.dumps(self.content) + "\n").encode())


# Seconds


class Timing(NamedTuple):
    """A fit that is timed, and the seconds of one core that it may take."""

    name: str
    devices: int
    rows: int
    features: int
    most: float


TIMINGS = (
    Timing("800 features x 3 devices x 30 rows", 3, 30, 800, 5),
    Timing("1,000 devices x 30 rows x 10 features", 1000, 30, 10, 15),
)


def timed(timing: Timing, judged: Judged, answer: Any) -> None:
    """A whole fit through the public API, trial run and final run; its seconds and memory."""
    rows = clustered_regression(
        n=timing.devices,
        clusters=min(5, timing.devices),
        rows=timing.rows,
        features=timing.features,
        noise=0.5,
        seed=0,
    )
    begin = time.process_time()
    if judged.rule:
        loaded(judged.rule)().fit(rows.X, rows.y, rows.owner)
    else:
        model = PersonalizedRegressor(method=judged.method)
        model.fit(rows.X, rows.y, devices=rows.owner)
    seconds = time.process_time() - begin
    answer.put((seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20))


def seconds_of(timing: Timing, judged: Judged) -> tuple[float, float] | None:
    """Seconds of one core and GiB, in a process of its own; None after two minutes."""
    context = multiprocessing.get_context("spawn")
    answer: Any = context.Queue()
    child = context.Process(target=timed, args=(timing, judged, answer))
    child.start()
    try:
        found: tuple[float, float] = answer.get(timeout=PATIENCE)
    except queue.Empty:
        return None
    finally:
        child.kill()
        child.join()
    return found
