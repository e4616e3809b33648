"""Settings are chosen on rows that are learned from, with the same effort for every method.

A method's candidates are its settings (`line_up`) in every unit that it takes. A quarter of each
device's rows to learn from is hidden; every candidate learns from the others, and the one with the
least error on what was hidden learns again from all. Rows to judge by are never looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from persfl.errors import Diverged, InputError
from persfl.lab.counted_questions import AskingCost, CountedTask
from persfl.lab.line_up import HARDLY, NUMBERS_ONLY, Variants, on_terms
from persfl.lab.row_splits import RowSplit, held_back
from persfl.learners.named import learner_named
from persfl.learners.responses import respond_each
from persfl.methods import Method, cannot_run
from persfl.types import Array, Learner, Models
from persfl.units import Units

HIDDEN = 0.25  # of the rows to learn from, while settings are chosen
UNITS = ("shared", "centred")


class Candidate(NamedTuple):
    """A method in units: `variant` is what people read."""

    variant: str
    kind: str
    method: Method


class Picked(NamedTuple):
    """A candidate, of how many it was chosen."""

    candidate: Candidate
    tried: int


class Answer(NamedTuple):
    """Models with their units, and what they cost in questions."""

    models: Models
    units: Units
    cost: AskingCost


def candidates(
    variants: Variants, *, classes: int, kinds: Sequence[str] = UNITS
) -> list[Candidate]:
    """Every setting in every unit; one that looks at both units itself is tried once.

    >>> from persfl.methods import Ditto
    >>> found = candidates({"pull 1": Ditto(1.0), "pull 2": Ditto(2.0)}, classes=0)
    >>> [one.variant for one in found][:3]
    ['shared, pull 1', 'shared, pull 2', 'centred, pull 1']
    """
    found = []
    for kind in kinds:
        for setting, method in variants.items():
            takes = method.needs().units
            # Shrinking is a matter of classes: without any, leaving rows out knows best.
            other = setting in NUMBERS_ONLY if classes else setting == HARDLY
            if kind not in takes or other:
                continue
            both = "both" if "centred" not in takes else kind
            words = ", ".join(word for word in (both, setting) if word)
            found.append(Candidate(words, kind, method))
    return found


@dataclass(frozen=True)
class EqualTerms:
    """What all methods of a comparison have in common."""

    rounds: int = 100
    budget: int = 640
    seed: int = 0
    public: Array | None = None

    def answer(self, one: Candidate, dealt: RowSplit, learner: Learner) -> Answer:
        """Learn from the rows to learn from."""
        units = Units.of(dealt.learn, one.kind, labels=not dealt.classes)
        task = CountedTask(
            units.inside(dealt.learn),
            learner,
            self.seed,
            classes=dealt.classes,
            public=self.public,
            known=dealt.order,
        )
        method = on_terms(one.method, rounds=self.rounds, budget=self.budget)
        models = method.run(task).models
        return Answer(models, units, task.cost(method))


def linear_learner(classes: int) -> Learner:
    """The model that comparisons are about."""
    learner: Learner = learner_named("linear", classes=classes)
    return learner


def choose(
    some: Sequence[Candidate], dealt: RowSplit, learner: Learner, terms: EqualTerms
) -> Picked:
    """The candidate with the least error on hidden rows; the only one without a look."""
    able = [one for one in some if not cannot_run(one.method, learner)]
    if not able:
        raise InputError(cannot_run(some[0].method, learner))
    if len(able) == 1:
        return Picked(able[0], 1)
    try:
        inner = held_back(
            dealt.learn,
            HIDDEN,
            seed=terms.seed,
            classes=dealt.classes,
            order=dealt.order,
        )
    except InputError:  # too few rows to hide any: the first is what its authors say
        return Picked(able[0], 1)
    least = [_error(one, inner, learner, terms) for one in able]
    return Picked(able[int(np.argmin(least))], len(able))


def _error(
    one: Candidate, dealt: RowSplit, learner: Learner, terms: EqualTerms
) -> float:
    """On the rows to judge by; infinite where its steps run away."""
    try:
        answer = terms.answer(one, dealt, learner)
    except Diverged:
        return np.inf
    found = device_errors(answer, dealt, learner)
    return float(np.mean(np.where(np.isfinite(found), found, np.inf)))


def device_errors(answer: Answer, dealt: RowSplit, learner: Learner) -> Array:
    """(devices,) mean squared errors over the label's variance, or shares of wrong labels."""
    judge = dealt.judge
    missed = misses(answer, dealt, learner)
    if not dealt.classes:
        missed = missed / max(float(dealt.learn.y.var()), np.finfo(float).tiny)
    sums = np.bincount(judge.owner, weights=missed * judge.weight, minlength=len(judge))
    return np.asarray(sums / judge.total)


def misses(answer: Answer, dealt: RowSplit, learner: Learner) -> Array:
    """(rows,) squared errors of the rows to judge by, or whether a label is wrong."""
    judge = dealt.judge
    owner = judge.owner
    units = answer.units
    inside = units.features(judge.X, owner)
    said: Any = respond_each(learner, answer.models, inside, owner, dealt.classes)
    if dealt.classes:
        return np.asarray((said.argmax(axis=1) != judge.y) + 0.0)
    return np.asarray((units.outside(said, owner) - judge.y) ** 2)
