"""Trees whose questions are drawn at random, and whose leaves are noised sums or class counts.

The questions are the same for everybody and come from declared ranges and the run's seed: no row
has a part in them. Each device tells, once, in every leaf sums of labels and numbers of rows, or
numbers of rows of each class. At home a leaf says the mean of own rows and, as far as left-out rows
like it, of what others told.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.tree import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreeClassifier,
    ExtraTreeRegressor,
)

from persfl.learners.estimator import Estimator
from persfl.learners.plain import Plain
from persfl.learners.tree import Grown, Tree
from persfl.privacy.mechanisms import noised_class_leaves, noised_leaves
from persfl.privacy.secure_noise import NoiseSource
from persfl.seeds import Stream
from persfl.types import Array, IntArray, Learner, Model

TREES = 8
DEEPEST = 6  # leaves share what rows say, and all of them are told
CALM = 1.0  # rows' worth of the label's middle, or of an even share of classes, in every leaf
_GROWN = (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreeClassifier,
    ExtraTreeRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
)


def grows_trees(learner: Learner) -> bool:
    """Whether models are trees or forests: those whose leaves can be told without the questions
    of trees that rows have chosen.

    >>> grows_trees(Tree()), grows_trees(Estimator(RandomForestClassifier()))
    (True, True)
    """
    if isinstance(learner, Tree):
        return True
    return isinstance(learner, Estimator) and type(learner.estimator) in _GROWN


def shared_depth(learner: Learner) -> int:
    """How deep the random trees of such a learner are.

    >>> shared_depth(Tree(max_depth=3)), shared_depth(Tree(max_depth=9))
    (3, 6)
    """
    grower = learner.estimator if isinstance(learner, Estimator) else learner
    asked = getattr(grower, "max_depth", None)
    return DEEPEST if asked is None else min(int(asked), DEEPEST)


class Leaves(NamedTuple):
    """What leaves rest on: (outputs, all leaves) sums of labels, and (all leaves,) numbers of
    rows. Of classes a label is 1 for the class of the row, less an even share.
    """

    sums: Array
    counts: Array

    def and_of(self, others: Leaves, weight: float) -> Leaves:
        """With what others told, as if so much of it were own."""
        sums = self.sums + weight * others.sums
        return Leaves(sums, self.counts + weight * others.counts)

    @property
    def means(self) -> Array:
        """(outputs, all leaves) what leaves say."""
        return np.asarray(np.clip(self.sums / (self.counts + CALM), -1.0, 1.0))


class RandomTrees(NamedTuple):
    """Complete trees of a depth, as one `Grown` each whose leaves say nothing yet; `classes` is 0
    for trees of numbers.
    """

    trees: tuple[Grown, ...]
    depth: int
    classes: int

    @staticmethod
    def drawn(
        low: Array, high: Array, depth: int, place: Stream, classes: int = 0
    ) -> RandomTrees:
        """Within these ranges of columns."""
        made = [_drawn(low, high, depth, place.at(t)) for t in range(TREES)]
        return RandomTrees(tuple(made), depth, classes)

    @property
    def leaves(self) -> int:
        """Of one tree."""
        return 1 << self.depth

    @property
    def form(self) -> tuple[int, int]:
        """Of what a device tells: (outputs and a count, or classes; all leaves)."""
        return self.classes or 2, self.leaves * len(self.trees)

    def falls(self, X: Array) -> IntArray:
        """(rows, trees) the leaf, among those of its tree, into which each row falls."""
        rows = np.arange(len(X))
        found = np.zeros((len(X), len(self.trees)), dtype=np.int64)
        for t, tree in enumerate(self.trees):
            at = np.zeros(len(X), dtype=np.int64)
            for _ in range(self.depth):
                asked = X[rows, tree.feature[at]]
                right = asked > tree.threshold[at]
                at = np.where(right, tree.right[at], tree.left[at])
            found[:, t] = at - (self.leaves - 1)
        return found

    def places(self, X: Array) -> IntArray:
        """(rows, trees) the same among all leaves."""
        return np.asarray(
            self.falls(X) + self.leaves * np.arange(len(self.trees)), dtype=np.int64
        )

    def told(self, X: Array, y: Array, multiplier: float, source: NoiseSource) -> Array:
        """(outputs and a count, all leaves) sums of labels, which lie between -1 and 1, and
        numbers of rows; or (classes, all leaves) numbers of rows. With noise.
        """
        fell = self.falls(X)
        if self.classes:
            form = (self.classes, len(self.trees), self.leaves)
            return noised_class_leaves(
                fell, y.astype(np.int64), form, multiplier, source
            )
        shape = (len(self.trees), self.leaves)
        return noised_leaves(fell, y[:, None], shape, 1.0, multiplier, source)

    def heard(self, told: Array) -> Leaves:
        """What one or more devices told, as far as rows can have it."""
        if not self.classes:
            return Leaves(told[:-1], np.maximum(told[-1], 0.0))
        there = np.maximum(told, 0.0)
        counts = there.sum(axis=0)
        return Leaves(there - counts / self.classes, counts)

    def labels(self, y: Array) -> Array:
        """(rows, outputs) labels as leaves sum them; of numbers they lie between -1 and 1."""
        if not self.classes:
            return y[:, None]
        return np.asarray((y[:, None] == np.arange(self.classes)) - 1.0 / self.classes)

    def models(self, learner: Learner, means: Array) -> Model:
        """A mix of the trees, whose leaves (outputs, all leaves) say this."""
        parts = means.reshape(len(means), len(self.trees), self.leaves)
        share = 1.0 / len(self.trees)
        inner = np.zeros((self.leaves - 1, len(means)))
        found = []
        for t, tree in enumerate(self.trees):
            value = np.concatenate([inner, parts[:, t].T])
            found.append((share, self._dressed(learner, tree, value)))
        return found

    def _dressed(self, learner: Learner, tree: Grown, value: Array) -> Model:
        """One tree as a model of its learner."""
        if isinstance(learner, Tree):
            return tree._replace(value=value[:, 0])
        labels = np.arange(self.classes, dtype=np.float64) if self.classes else None
        if self.classes:
            value = value + 1.0 / self.classes
        link = "chances" if self.classes else "value"
        base = np.zeros(value.shape[1])
        return Plain(link, base, labels, trees=(tree._replace(value=value),))


def _drawn(low: Array, high: Array, depth: int, place: Stream) -> Grown:
    """Nodes in rows from the root: the children of node k are 2k + 1 and 2k + 2."""
    inner = 2**depth - 1
    many = 2 * inner + 1
    luck = place.uniform(inner, 2)
    feature = np.full(many, -1)
    threshold = np.zeros(many)
    bounds = {0: (low, high)}
    for k in range(inner):
        here, there = bounds.pop(k)
        j = min(int(luck[k, 0] * len(low)), len(low) - 1)
        cut = here[j] + luck[k, 1] * (there[j] - here[j])
        feature[k] = j
        threshold[k] = cut
        left = there.copy()
        right = here.copy()
        left[j] = right[j] = cut
        bounds[2 * k + 1] = (here, left)
        bounds[2 * k + 2] = (right, there)
    node = np.arange(many)
    children = np.where(node < inner, 2 * node + 1, -1)
    others = np.where(children >= 0, children + 1, -1)
    return Grown(feature, threshold, children, others, np.zeros(many))
