"""What the owner of a device allows: a few numbers in a file that only the owner writes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from persfl.errors import InputError
from persfl.federation.plain_settings import settings_from
from persfl.files import read_toml
from persfl.learners.any_family import ANY
from persfl.learners.named import ESTIMATORS
from persfl.learners.network import Network
from persfl.learners.storage.tree_limits import deepest
from persfl.wire.terms import Terms

MODELS = ("linear", "mlp", "ridge", "tree", "forest", "boosting", ANY)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What a device answers.

    `models`: families, and "any" for runs in which every device has its own; `networks`: torch
    modules of installed packages, as "module:function".

    In one run: `questions_per_target` and `questions`, the most different questions that are
    answered to one target and in all; `numbers`, the most numbers that the device tells of itself
    (sums, and as a target losses, lengths, steps, evidence, its model). Run names are the asker's
    word, so
    `questions_ever` and `numbers_ever` bound all runs together.

    `steps`: the most gradient steps per answer; `trees`: the most trees. `work`: the most work per
    message, about in nanoseconds. `disk`: the most bytes of models that are kept, of all runs.
    `rows`: the fewest rows that anything is computed from (after holding some back, in one batch,
    without a fold), and by how many rows two sets of rows that are answered from differ at least.
    `rows_per_leaf`: the fewest private rows that a leaf of a tree rests on.
    `sums`: whether sums over rows may leave: per column, which shared units need, and of products
    of columns over parts of the rows, which a blend of linear models under squared loss is made of
    (of small models of classes: of products that are weighed by a model's chances, and of what
    hidden rows say of shares).
    `target`: whether this device has a model of its own.

    >>> Policy(rows=20).refuses(Terms(columns=("a",)), rows=10)
    'rows'
    """

    models: tuple[str, ...] = MODELS
    networks: tuple[str, ...] = ()
    questions_per_target: int = 1_000
    questions: int = 100_000
    questions_ever: int = 1_000_000
    numbers: int = 1_000_000
    numbers_ever: int = 10_000_000
    steps: int = 10
    trees: int = 500
    work: int = 200_000_000_000
    disk: int = 1_000_000_000
    rows: int = 5
    rows_per_leaf: int = 5
    sums: bool = True
    target: bool = True

    @staticmethod
    def read(path: Path) -> Policy:
        """The `[policy]` table of a file."""
        told = read_toml(path, f"the policy in {path.name!r}")
        return Policy.of(told.get("policy", {}))

    @staticmethod
    def of(told: object) -> Policy:
        """A policy from plain values."""
        return settings_from(Policy, told, "the policy")

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, int) and value < 0:
                raise InputError(
                    f"{name} of the policy must be a whole number of at least 0. Got {value}."
                )

    def refuses(self, terms: Terms, rows: int) -> str | None:
        """The name of the limit that these terms break, if any."""
        if terms.model == "network":
            if terms.settings.get("make") not in self.networks:
                return "models"
        elif terms.model not in self.models:
            return "models"
        refits = terms.public is not None and terms.model in ("mlp", "network")
        if max(terms.steps, Network.refit_steps if refits else 0) > self.steps:
            return "steps"
        if (
            trees_asked(terms) > self.trees
            or int(terms.settings.get("max_depth") or 0) > 30
        ):
            return "trees"
        least = max(self.rows, self.rows_per_leaf if trees_asked(terms) else 0)
        return "rows" if min(rows, terms.batch or rows) < least else None

    @staticmethod
    def unlimited(networks: tuple[str, ...] = ()) -> Policy:
        """For rows of whoever asks."""
        limits: dict[str, Any] = {
            name: 2**53 for name, usual in vars(Policy()).items() if type(usual) is int
        }
        few = {"rows": 0, "rows_per_leaf": 0}
        return Policy(networks=networks, **limits | few)

    def text(self) -> str:
        """As it stands in a file."""
        lines = ["[policy]"]
        for name, value in vars(self).items():
            plain = list(value) if isinstance(value, tuple) else value
            lines.append(f"{name} = {json.dumps(plain)}")
        return "\n".join(lines) + "\n"


def trees_asked(terms: Terms) -> int:
    """How many trees an answer has: boosting grows one for each of several classes in every
    step.
    """
    if terms.model not in ("tree", "forest", "boosting"):
        return 0
    steps = (
        1
        if terms.model == "tree"
        else int(terms.settings.get("n_estimators", ESTIMATORS))
    )
    return steps * (
        terms.classes if terms.model == "boosting" and terms.classes > 2 else 1
    )


def work_of(terms: Terms, rows: int) -> int:
    """About how many nanoseconds one answer takes; never from what the rows say.

    >>> work_of(Terms(columns=("a", "b"), steps=3), rows=1000)
    9000
    """
    rows += (
        0
        if terms.public is None
        else len(terms.public) * (terms.classes if terms.soft else 1)
    )
    trees = trees_asked(terms)
    if trees:
        return trees * (_TREE + _CELL * rows * terms.features) + work_of_walk(
            terms, rows
        )
    size = _size(terms)
    if terms.public is None:
        return terms.steps * rows * size
    if terms.model in ("mlp", "network"):
        return max(terms.steps, Network.refit_steps) * rows * size
    return (rows + size) * size**2  # a system of equations


def work_of_walk(terms: Terms, rows: int) -> int:
    """About how many nanoseconds it takes until every row has come down all trees of a model; 0
    where there are none.

    >>> work_of_walk(Terms(model="forest", columns=("a",)), rows=1000)
    5400000
    """
    trees = trees_asked(terms)
    return trees and walk_down(trees, deepest(terms.learner()), rows)


def walk_down(trees: int, deep: int, rows: int) -> int:
    """The same of so many trees of this depth."""
    return trees * deep * (_LEVEL + _STEP * rows)


def work_of_fit(terms: Terms, rows: int) -> int:
    """About how many nanoseconds it takes to learn from a device's own rows alone.

    >>> asked = Terms(model="mlp", columns=("a", "b"), settings={"hidden": [4]})
    >>> work_of_fit(asked, rows=100) // work_of(asked, rows=100)
    201
    """
    if trees_asked(terms):
        return work_of(terms, rows)
    learner = terms.learner()
    size = _size(terms)
    if terms.model in ("mlp", "network"):
        return int(learner.epochs + 1) * rows * size
    squared = terms.model == "linear" and learner.kind == "squared"
    return (
        (rows + size) * size**2
        if squared or terms.model == "ridge"
        else _DESCENT * rows * size
    )


_DESCENT = 200  # steps of a descent, about
_TREE, _CELL = 300_000, 100  # nanoseconds to begin a tree, and for a number in it
_LEVEL, _STEP = 10_000, 20  # for every question on the way down, and for a row at it


def _size(terms: Terms) -> int:
    learner = terms.learner()
    if hasattr(learner, "size"):
        return int(learner.size(terms.features))
    return (terms.features + 1) * max(terms.classes, 1)
