"""The contract of a method, as a check to run on your own: `persfl.testing.check_method`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

import numpy as np
from sklearn.base import clone

from persfl.devices import Devices
from persfl.errors import InputError
from persfl.learners import Linear, Tree
from persfl.learners.fleet_mix import DeviceMix
from persfl.learners.responses import respond
from persfl.methods.local_task import LocalTask
from persfl.methods.protocol import Method, Task
from persfl.sources import clustered_regression
from persfl.training.state import Plan, State
from persfl.traits import traits_of
from persfl.trust import Trust
from persfl.types import Array, Round
from persfl.units import KINDS

PLAIN = (bool, int, float, str, type(None))


def check_method(method: Method, *, rows: Devices | None = None) -> None:
    """A method: a plain value with a meaning for every setting, whose needs are honest.

    Same seed, same result, for any number of jobs and after any interruption; it changes no rows,
    and reads them together only where it says so. Models of every kind that its needs allow are
    made: linear ones, with numbers and with classes, and trees.

    >>> from persfl.methods import Paper
    >>> check_method(Paper(rounds=3, peers=2))
    """
    _check_value(method)
    _check_needs(method)
    tried = 0
    for task in _tasks(rows):
        traits = traits_of(task.learner)
        needs = method.needs()
        if needs.gradients > traits.gradients or needs.mixes > traits.mixes:
            continue
        if needs.numbers and traits.task != "numbers":
            continue
        _check_runs(method, task)
        tried += 1
    _expect(tried > 0, "a method must run with linear models at least")


def _check_value(method: Method) -> None:
    kind: Any = type(method)
    frozen = is_dataclass(kind) and kind.__setattr__ is not object.__setattr__
    _expect(frozen, "a method must be a frozen dataclass")
    listed = fields(kind)
    _expect(method.name and method.name == kind.name, "a method must have a name")
    for words in (method.name, method.about):
        one_line = isinstance(words, str) and words.strip() and "\n" not in words
        _expect(one_line, "name and about must be one line each")
    for one in listed:
        where = f"setting {one.name!r}"
        _expect(isinstance(one.default, PLAIN), f"{where} must have a plain default")
        meaning = one.metadata.get("meaning", "")
        _expect(meaning and "\n" not in meaning, f"{where} must have a meaning, a line")
    settings = method.get_params()
    names = {one.name for one in listed}
    _expect(set(settings) == names, "get_params must name every field")
    _expect(kind(**settings) == method, "settings must make the same method again")
    _expect(method.set_params(**settings) == method, "set_params must take settings")
    _expect(clone(method) == method, "scikit-learn must be able to clone it")
    try:
        method.set_params(**{"no such setting": 1})
    except InputError:
        return
    raise AssertionError("broken promise: set_params must refuse what is no setting")


def _check_needs(method: Method) -> None:
    needs = method.needs()
    _expect(needs == method.needs(), "needs must not change")
    _expect(needs.units and set(needs.units) <= set(KINDS), f"units are of {KINDS}")
    for words in (needs.leaves, needs.not_federated):
        _expect(not words or words.endswith("."), "leaves must be a sentence")
    _expect(needs.leaves, "needs must say what leaves a device")


def _check_runs(method: Method, task: LocalTask) -> None:
    before = [part.copy() for part in (task.rows.X, task.rows.y, task.rows.weight)]
    keep = _Notebook()
    state = method.run(task, stage="final", keep=keep)
    n = task.n
    _expect(len(state.models) == n, "there must be a model for every device")
    for model in state.models:
        if isinstance(model, DeviceMix):
            model.check(task.learner, task.features)
            continue
        for _, part in model if isinstance(model, list) else [(1.0, model)]:
            task.learner.check(part, task.features)
    _expect(state.trust.n == n, "trust must be of all devices")
    _expect(len(state.losses) == state.r, "losses must be there for every round")
    for old, now in zip(
        before, (task.rows.X, task.rows.y, task.rows.weight), strict=True
    ):
        _expect(np.array_equal(old, now), "a method must not change rows")
    _expect_same(method.run(task), state, task, "the same seed must give the same")
    many = method.run(replace(task, n_jobs=2))
    _expect_same(many, state, task, "any number of jobs must give the same")
    for kept in _some(keep.states):
        resumed = method.run(task, keep=_Notebook(kept))
        _expect_same(resumed, state, task, "a run that was cut must end the same")
    needs = method.needs()
    if not (needs.together or needs.not_federated or needs.questions):
        sealed = method.run(cast("Task", _Sealed(task)))
        # a closed form, where rows are together, takes no rounds
        same = len(sealed.models) == n and state.r in (0, sealed.r)
        _expect(same, "a method must run where rows are not together")


class _Notebook:
    """Keeps every state as a disk would: none of it changes afterwards."""

    def __init__(self, last: State | None = None) -> None:
        self.states: list[State] = []
        self._last = last

    def last(self, stage: str) -> State | None:
        return self._last

    def after(self, stage: str, plan: Plan, state: State, round_: Round | None) -> None:
        if state.models is None:
            return
        kept = state.kept
        if kept is not None:
            kept = {name: np.array(value) for name, value in kept.items()}
        trust = Trust.from_arrays(state.trust.to_arrays())
        models = state.models
        if isinstance(models, np.ndarray):
            models = models.copy()
        self.states.append(replace(state, models=models, trust=trust, kept=kept))


class _Sealed:
    """A task whose rows are not in one place: a fleet is all there is to ask."""

    together = False

    def __init__(self, inner: LocalTask) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        promised = (
            "needs say that rows need not be together; run must not read task.rows"
        )
        _expect(name != "rows", promised)
        return getattr(self._inner, name)


def _tasks(rows: Devices | None) -> Iterator[LocalTask]:
    """Linear models, with numbers and with classes, and trees."""
    if rows is None:
        rows = clustered_regression(
            n=7, clusters=2, rows=8, features=2, noise=0.1, seed=0
        )
    yield LocalTask(rows, Linear(intercept=True), seed=3)
    y = np.where(rows.y > np.median(rows.y), 1.0, 0.0)
    classes = Devices(rows.X, y, rows.weight, rows.start, rows.ids)
    yield LocalTask(classes, Linear("logistic", intercept=True), seed=3, classes=2)
    public = np.random.default_rng(0).standard_normal((12, rows.features))
    yield LocalTask(rows, Tree(2), seed=3, public=public)


def _some(states: list[State]) -> list[State]:
    """The first, one in the middle and the last."""
    if not states:
        return []
    return [states[i] for i in sorted({0, len(states) // 2, len(states) - 1})]


def _expect_same(ours: State, theirs: State, task: Task, promise: str) -> None:
    same = ours.r == theirs.r and np.array_equal(ours.losses, theirs.losses)
    _expect(same, promise)
    tables = [state.trust.table().to_numpy(dtype=float) for state in (ours, theirs)]
    _expect(np.array_equal(tables[0], tables[1], equal_nan=True), promise)
    _expect(np.array_equal(_answers(ours, task), _answers(theirs, task)), promise)


def _answers(state: State, task: Task) -> Array:
    """(devices, rows) what every model says of everybody's first rows."""
    X = np.asarray(task.rows.X[:50])
    learner = task.learner
    return np.array(
        [respond(learner, model, X, task.classes) for model in state.models]
    )


def _expect(held: object, promise: str) -> None:
    if not held:
        raise AssertionError(f"broken promise: {promise}")
