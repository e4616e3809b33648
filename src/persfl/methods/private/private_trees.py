"""Trees whose questions are drawn at random, and whose leaves are noised sums.

The questions are the same for everybody and come from declared ranges and the run's seed: no row
has a part in them. Each device tells, once, sums of labels and numbers of rows in every leaf. At
home a leaf says the mean of own rows and, as far as left-out rows like it, of what others told.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from persfl.devices import Devices
from persfl.learners.tree import Grown, Tree
from persfl.methods.private.private_budget import RunBudget
from persfl.privacy.mechanisms import noised_leaves
from persfl.privacy.secure_noise import NoiseSource
from persfl.seeds import Stream, stream
from persfl.types import Array, Data, IntArray, Learner, Model

TREES = 8
WEIGHTS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)  # of what others told, against own rows
CALM = 1.0  # rows' worth of the label's middle in every leaf


class RandomTrees(NamedTuple):
    """Complete trees of a depth, as one `Grown` each whose leaves say nothing yet."""

    trees: tuple[Grown, ...]
    depth: int

    @staticmethod
    def drawn(low: Array, high: Array, depth: int, place: Stream) -> RandomTrees:
        """Within these ranges of columns."""
        made = [_drawn(low, high, depth, place.at(t)) for t in range(TREES)]
        return RandomTrees(tuple(made), depth)

    @property
    def leaves(self) -> int:
        """Of one tree."""
        return 1 << self.depth

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

    def chosen(self, X: Array) -> Array:
        """(rows, all leaves) 1 where a row falls."""
        place = self.falls(X) + self.leaves * np.arange(len(self.trees))
        found = np.zeros((len(X), self.leaves * len(self.trees)))
        np.put_along_axis(found, place, 1.0, axis=1)
        return found

    def told(self, X: Array, y: Array, multiplier: float, source: NoiseSource) -> Array:
        """(2, all leaves) sums of labels, which lie between -1 and 1, and numbers of rows, with
        noise.
        """
        shape = (len(self.trees), self.leaves)
        fell = self.falls(X)
        return noised_leaves(fell, y[:, None], shape, 1.0, multiplier, source)

    def models(self, values: Array) -> Model:
        """A mix of the trees, whose leaves (all leaves,) say this."""
        parts = values.reshape(len(self.trees), self.leaves)
        inner = np.zeros(self.leaves - 1)
        share = 1.0 / len(self.trees)
        return [
            (share, tree._replace(value=np.concatenate([inner, part])))
            for tree, part in zip(self.trees, parts, strict=True)
        ]


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


def tree_models(
    learner: Tree,
    rows: Devices,
    ranges: Array,
    spend: RunBudget,
) -> list[Model]:
    """A model per device; `ranges` (columns and the label, 2) are declared."""
    low, high = ranges.T
    place = stream(spend.seed, "random trees")
    trees = RandomTrees.drawn(low[:-1], high[:-1], learner.max_depth, place)
    middle = (low[-1] + high[-1]) / 2
    half = (high[-1] - low[-1]) / 2
    y = np.clip((rows.y - middle) / half, -1.0, 1.0)
    told = []
    for i in range(len(rows)):
        mine = slice(rows.start[i], rows.start[i + 1])
        source = spend.source(i, "leaves")
        told.append(trees.told(rows.X[mine], y[mine], spend.noise(), source))
    total = np.sum(told, axis=0)
    models = []
    for i in range(len(rows)):
        others = total - told[i]
        models.append(
            trees_at_home(learner, rows[i], trees, others, (middle, half), spend.seed)
        )
    return models


def leaf_means(told: Array) -> Array:
    """(all leaves,) what leaves say, from sums and numbers of rows with noise."""
    counts = np.maximum(told[1], 0.0) + CALM
    return np.asarray(np.clip(told[0] / counts, -1.0, 1.0))


def trees_at_home(
    learner: Tree,
    data: Data,
    trees: RandomTrees,
    others: Array,
    label: tuple[float, float],
    seed: int,
) -> Model:
    """Own tree, or random trees with what others told: what left-out rows clearly like."""
    middle, half = label
    y = (data.y - middle) / half
    leaves = trees.chosen(data.X)
    place = stream(seed, "own")
    own = learner.fit(data, place)
    if data.rows < 2:
        return own
    alone = _left_out(learner, data, place) / half
    best = own
    gain = 0.0
    mine = data.weight
    labels = mine * y
    for weight in WEIGHTS:
        theirs = weight * np.maximum(others[1], 0.0)
        counts = leaves.T @ mine + theirs + CALM
        sums = leaves.T @ labels + weight * others[0]
        # a row that is left out takes its label and its count along
        fewer = np.maximum(counts - leaves * mine[:, None], CALM)
        less = (sums - leaves * labels[:, None]) / fewer
        missed = y - (leaves * less).sum(axis=1) / TREES
        better = alone**2 - missed**2
        error = better.std() / np.sqrt(max(data.rows - 1, 1))
        sure = better.mean() - error
        if sure > gain:
            gain = sure
            means = np.clip(sums / counts, -1.0, 1.0)
            best = trees.models(means * half + middle)
    return best


def _left_out(learner: Learner, data: Data, place: Stream) -> Array:
    """(rows,) what own trees leave of rows that they did not see, in five folds."""
    luck = place.at("folds").uniform(data.rows)
    fold = np.argsort(np.argsort(luck)) % 5
    left = np.zeros(data.rows)
    for k in np.unique(fold).tolist():
        hide = np.flatnonzero(fold == k)
        grown = learner.fit(data.take(np.flatnonzero(fold != k)), place)
        left[hide] = data.y[hide] - learner.predict(grown, data.X[hide])
    return left
