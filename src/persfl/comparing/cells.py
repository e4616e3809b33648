"""One data set, one seed: every method's error on every device. Cells run in parallel and are kept as they come."""

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

from persfl.comparing.methods import METHODS, Terms
from persfl.comparing.sets import DataSet, Dealt, Table
from persfl.errors import InputError
from persfl.experiments.runner import work
from persfl.files import write_whole
from persfl.learners.named import learner_named
from persfl.predicting import respond_each
from persfl.types import Array
from persfl.units import Units

_FORM = 1  # of kept results


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

    def work(self) -> tuple[dict[str, Any], float]:
        """What was found, as plain values, and the seconds of one core; by one thread, so that sums come out the same anywhere."""
        begin = time.process_time()
        with threadpool_limits(1):
            found = measured(
                self.data.dealt(self.seed),
                self.methods,
                rounds=self.rounds,
                budget=self.budget,
                seed=self.seed,
                ordered=getattr(self.data, "ordered", False),
            )
        about = {"set": self.data.name, "seed": self.seed, "settings": self.data.settings}
        return about | found | {"total": round(time.process_time() - begin, 2)}, time.process_time() - begin


def measured(
    dealt: Dealt,
    methods: Sequence[str],
    *,
    rounds: int = 100,
    budget: int = 640,
    seed: int = 0,
    ordered: bool = False,
) -> dict[str, Any]:
    """Per method and variant (units, setting): every device's error, and the seconds of one core that fitting took.

    An error is the mean squared error over the label's variance in the rows learned from, or the share of wrong labels.

    >>> found = measured(DataSet(name="txhousing", few=10).dealt(seed=0), ["local", "pooled"])
    >>> {name: sorted(errors) for name, errors in found["errors"].items()}
    {'local': ['centred', 'shared'], 'pooled': ['centred', 'shared']}
    >>> bool(np.mean(found["errors"]["pooled"]["centred"]) < np.mean(found["errors"]["local"]["shared"]))
    True
    """
    learn, judge, classes = dealt
    learner = learner_named("linear", classes=classes)
    errors: dict[str, dict[str, list[float]]] = {name: {} for name in methods}
    seconds: dict[str, dict[str, float]] = {name: {} for name in methods}
    for kind in ("shared", "centred"):
        units = Units.of(learn, kind, labels=not classes)
        terms = Terms(units.inside(learn), learner, classes, rounds, seed, budget, ordered=ordered)
        for name in methods:
            if kind not in METHODS[name].units:
                continue
            for setting, maker in METHODS[name].makers.items():
                begin = time.process_time()
                models = maker(terms)
                if models is None:
                    continue
                variant = ", ".join(word for word in (kind if len(METHODS[name].units) > 1 else "both", setting) if word)
                seconds[name][variant] = round(time.process_time() - begin, 3)
                errors[name][variant] = [float(f"{error:.7g}") for error in _errors(learner, models, units, dealt)]
    rows = {"learn": len(learn.y), "judge": len(judge.y)}
    return {"devices": [str(name) for name in learn.ids], "rows": rows, "classes": classes, "errors": errors, "seconds": seconds}


def _errors(learner: Any, models: Array, units: Units, dealt: Dealt) -> Array:
    learn, judge, classes = dealt
    said = respond_each(learner, models, units.features(judge.X, judge.owner), judge.owner, classes)
    if classes:
        missed = (said.argmax(axis=1) != judge.y) + 0.0
    else:
        missed = (units.outside(said, judge.owner) - judge.y) ** 2 / max(float(learn.y.var()), np.finfo(float).tiny)
    return np.asarray(np.bincount(judge.owner, weights=missed * judge.weight, minlength=len(judge)) / judge.total)


def run_cells(
    cells: Sequence[Cell], *, jobs: int = 1, path: Path | None = None, done: Callable[[dict[str, Any]], Any] | None = None
) -> list[dict[str, Any]]:
    """Do what is not in the file at `path` yet, longest first, keep each cell there as it comes, and return all in order."""
    about = {"form": _FORM, "code": code(), "methods": list(cells[0].methods), "rounds": cells[0].rounds, "budget": cells[0].budget}
    kept = {} if path is None else _kept(path, about)
    todo = [cell for cell in cells if kept.get((cell.data.name, cell.seed), {}).get("settings") != _plain(cell.data.settings)]
    for found, _ in work(todo, jobs=jobs):
        kept[found["set"], found["seed"]] = _plain(found)
        if path is not None:
            write_whole(path, (json.dumps(about | {"cells": list(kept.values())}) + "\n").encode())
        if done is not None:
            done(found)
    return [kept[cell.data.name, cell.seed] for cell in cells]


def read_cells(path: Path) -> dict[str, Any]:
    """A file of kept results."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{str(path)!r} could not be read as kept results: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("cells"), list):
        raise InputError(f"{str(path)!r} holds no results of a comparison. Choose another file.")
    return content


def _kept(path: Path, about: dict[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    if not path.exists():
        return {}
    content = read_cells(path)
    other = next((key for key, value in about.items() if content.get(key) != value), None)
    if other is not None:
        raise InputError(f"{str(path)!r} holds results of other {other}, not to be mixed with these. Choose another --out.")
    return {(cell["set"], cell["seed"]): cell for cell in content["cells"]}


def _plain(value: dict[str, Any]) -> Any:
    """As it reads when it comes back from a file."""
    return json.loads(json.dumps(value))


@cache
def code() -> str:
    """A fingerprint of the package's source: results of other code are other results."""
    digest, root = hashlib.sha256(), Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:20]
