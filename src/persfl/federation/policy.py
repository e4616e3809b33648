"""What the owner of a device allows: a few numbers in a file that only the owner writes."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from persfl.errors import InputError
from persfl.learners.named import ESTIMATORS
from persfl.learners.network import Network
from persfl.wire import Terms

MODELS = ("linear", "mlp", "ridge", "tree", "forest", "boosting")


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What a device answers.

    `models`: families; `networks`: torch modules of installed packages, as "module:function".

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
    `sums`: whether column sums may leave, which shared units need. `target`: whether this device
    has a model of its own.

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
        try:
            told = tomllib.loads(path.read_text()).get("policy", {})
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(
                f"the policy in {path.name!r} could not be read: {error}."
            ) from None
        return Policy.of(told)

    @staticmethod
    def of(told: Mapping[str, Any]) -> Policy:
        """A policy from plain values; an unknown key is an error, because a limit with a typing
        mistake protects nobody.
        """
        if not isinstance(told, Mapping):
            raise InputError(f"the policy must be a table of settings. Got {told!r}.")
        kinds = {f.name: f.type for f in dataclasses.fields(Policy)}
        for name, value in told.items():
            if name not in kinds:
                raise InputError(
                    f"the policy has no setting {name!r}. Known: {', '.join(kinds)}."
                )
            good = {
                "int": isinstance(value, int)
                and not isinstance(value, bool)
                and value >= 0,
                "bool": isinstance(value, bool),
            }.get(
                str(kinds[name]),
                isinstance(value, list) and all(isinstance(v, str) for v in value),
            )
            if not good:
                raise InputError(
                    f"{name} of the policy must be"
                    f" {_WANT.get(str(kinds[name]), 'a list of names')}. Got {value!r}."
                )
        plain: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in told.items()
        }
        return Policy(**plain)

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
        if _trees(terms) > self.trees or int(terms.settings.get("max_depth") or 0) > 30:
            return "trees"
        least = max(self.rows, self.rows_per_leaf if _trees(terms) else 0)
        return "rows" if min(rows, terms.batch or rows) < least else None

    @staticmethod
    def unlimited(networks: tuple[str, ...] = ()) -> Policy:
        """For rows of whoever asks."""
        most = 2**53
        fields = [f.name for f in dataclasses.fields(Policy) if str(f.type) == "int"]
        limits: dict[str, Any] = dict.fromkeys(fields, most) | {
            "rows": 0,
            "rows_per_leaf": 0,
        }
        return Policy(**limits, networks=networks)

    def text(self) -> str:
        """As it stands in a file."""
        lines = ["[policy]"]
        for f in dataclasses.fields(Policy):
            value = getattr(self, f.name)
            shown = (
                str(value).lower()
                if isinstance(value, bool)
                else str(list(value))
                if isinstance(value, tuple)
                else str(value)
            )
            lines.append(f"{f.name} = {shown}".replace("'", '"'))
        return "\n".join(lines) + "\n"


def _trees(terms: Terms) -> int:
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
    trees = _trees(terms)
    if trees:
        return trees * (_TREE + _CELL * rows * terms.features)
    size = _size(terms)
    if terms.public is None:
        return terms.steps * rows * size
    if terms.model in ("mlp", "network"):
        return max(terms.steps, Network.refit_steps) * rows * size
    return (rows + size) * size**2  # a system of equations


def work_of_fit(terms: Terms, rows: int) -> int:
    """About how many nanoseconds it takes to learn from a device's own rows alone.

    >>> asked = Terms(model="mlp", columns=("a", "b"), settings={"hidden": [4]})
    >>> work_of_fit(asked, rows=100) // work_of(asked, rows=100)
    201
    """
    if _trees(terms):
        return work_of(terms, rows)
    learner, size = terms.learner(), _size(terms)
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


def _size(terms: Terms) -> int:
    learner = terms.learner()
    if hasattr(learner, "size"):
        return int(learner.size(terms.features))
    return (terms.features + 1) * max(terms.classes, 1)


_WANT = {"int": "a whole number of at least 0", "bool": "true or false"}
