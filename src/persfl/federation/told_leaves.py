"""Random trees that everybody draws alike, and sums in their leaves: how those travel.

Rows come in units in which declared ranges are -1 to 1, labels that are numbers too. Questions of
trees are drawn within these by the run's seed: no row has a part in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from persfl.methods.blend.forms import Form
from persfl.methods.blend.question_base import Question, reply_numbers
from persfl.methods.blend.questions import LeafSums, Take
from persfl.methods.private.random_trees import TREES, RandomTrees, shared_depth
from persfl.seeds import stream
from persfl.types import Array, Learner
from persfl.wire.terms import Terms

LEAVES = (
    f"One forest for all: {TREES} trees with random questions, in whose leaves protected devices"
    " told noised sums or class counts; each has weighed what others told against its own rows at"
    " home, and keeps the outcome there"
)


@dataclass(frozen=True, eq=False)
class LeavesFamily:
    """Random trees, as `persfl.methods.blend.forms.ModelFamily`: devices are asked for sums in
    their leaves, and handed those of the others.
    """

    terms: Terms
    classes: ClassVar[int] = 0
    views: ClassVar[tuple[str, ...]] = ()
    proposer: ClassVar[None] = None
    questions: ClassVar[tuple[type[Question], ...]] = (LeafSums, Take)

    @cached_property
    def learner(self) -> Learner:
        """What own rows are fitted by at home."""
        learner: Learner = self.terms.learner()
        return learner

    @property
    def features(self) -> int:
        """How many columns rows have."""
        return self.terms.features

    @cached_property
    def trees(self) -> RandomTrees:
        """The same for everybody."""
        edge = np.ones(self.features)
        place = stream(self.terms.seed, "random trees")
        depth = shared_depth(self.learner)
        return RandomTrees.drawn(-edge, edge, depth, place, self.terms.classes)

    @property
    def size(self) -> int:
        """How many numbers a device tells: of each leaf a sum and a count, or a count of each
        class.
        """
        each, leaves = self.trees.form
        return each * leaves

    def start_forms(self) -> Mapping[str, Form]:
        """Nothing is offered to be judged at home."""
        return {}

    def read(self, told: Mapping[str, Any]) -> Array | None:
        """(each, all leaves) what a device told; None where it is no such thing."""
        found = reply_numbers(told.get("leaves"), (self.size,))
        return found.reshape(self.trees.form) if np.isfinite(found).all() else None
