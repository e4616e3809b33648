"""Trees that may leave a device: every leaf rests on enough private rows.

A leaf of one private row is that row's label. So a question is taken out of a tree where one side
has some private rows, but fewer than `least`: these rows go on with those of the other side, and
values are those of the rows that are then together. Where both sides have too few, the node becomes
a leaf. A leaf without any private row may stay: its value comes from public points, whose labels
the asker sent.

Boosting fits each tree to what the trees before it left over. Questions are therefore taken out
tree by tree: what is left over is that of the trees that will travel, and no later leaf can tell
what an earlier one did not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from persfl.errors import InputError
from persfl.learners import Tree
from persfl.learners.plain import Plain
from persfl.learners.plain_families import as_plain
from persfl.learners.tree import Grown
from persfl.seeds import Stream
from persfl.types import Array, Data, IntArray

_BOOSTED = (GradientBoostingRegressor, GradientBoostingClassifier)
_FORESTS = (RandomForestRegressor, RandomForestClassifier)
_TREES = (DecisionTreeRegressor, DecisionTreeClassifier, *_FORESTS, *_BOOSTED)
_EPS = float(np.finfo(np.float32).eps)
Value = Callable[[IntArray], Array]  # of a leaf, from the numbers of its rows


class Sheltered:
    """A learner of trees whose fits may leave; the first `private` rows it is given are private."""

    def __init__(self, learner: Any, private: int, least: int) -> None:
        self.learner = learner
        self.private = private
        self.least = least

    def __getattr__(self, name: str) -> Any:
        return getattr(self.learner, name)

    def init(self, data: Data, stream: Stream) -> Any:
        """As the learner's, where that is a fit."""
        return self.fit(data, stream)

    def fit(self, data: Data, stream: Stream) -> Any:
        """As the learner's, with every leaf on enough private rows."""
        used = data.weight > 0
        rows = Data(data.X[used], data.y[used], data.weight[used])
        private = (np.arange(len(used)) < self.private)[used]
        # a root rests on all rows, and is never taken out
        if _few(private, self.least):
            raise InputError(
                f"at least {self.least} private rows must weigh more than 0."
            )
        if isinstance(self.learner, Tree):
            mean = _mean(rows.y, rows.weight)
            return cut_back(
                self.learner.fit(rows, stream), rows.X, private, self.least, mean
            )
        if (
            isinstance(self.learner.estimator, _BOOSTED)
            and not (rows.y == rows.y[0]).all()
        ):
            return boosted(self.learner.unfitted(stream), rows, private, self.least)
        model = self.learner.fit(rows, stream)
        plain = as_plain(model)
        if not plain.trees:
            return plain
        truth = rows.y[:, None]
        if plain.labels is not None:
            truth = (truth == plain.labels) + 0.0
        X = rows.X.astype(np.float32)
        everyone = np.arange(len(rows.y))
        trees = []
        for tree, weight in zip(plain.trees, _drawn(model, rows.weight), strict=True):
            mine = private & (weight > 0)
            # too few were drawn for any leaf: all rows are one
            if _few(mine, self.least):
                trees.append(_leaf(_mean(truth, rows.weight)(everyone)))
            else:
                trees.append(cut_back(tree, X, mine, self.least, _mean(truth, weight)))
        return Plain(
            plain.link, plain.base, plain.labels, None, plain.rate, tuple(trees)
        )


def _leaf(value: Array) -> Grown:
    """A tree that is one leaf."""
    none = np.array([-1])
    return Grown(none, np.zeros(1), none, none, np.array([value]))


def _mean(truth: Array, weight: Array) -> Value:
    """The value of a leaf from the numbers of its rows."""
    return lambda rows: np.average(truth[rows], axis=0, weights=weight[rows])


def sheltered(learner: Any, private: int, least: int) -> Any:
    """The learner as its fits may leave a device; itself where any leaf may, or there are none.

    >>> from persfl import Linear
    >>> sheltered(Linear(), 10, 5), sheltered(Tree(), 10, 1)
    (Linear(kind='squared', intercept=False, l2=0.0, delta=1.0, classes=1), Tree(max_depth=3))
    """
    trees = isinstance(learner, Tree) or isinstance(
        getattr(learner, "estimator", None), _TREES
    )
    return Sheltered(learner, private, least) if trees and least > 1 else learner


def cut_back(tree: Grown, X: Any, private: Any, least: int, mean: Value) -> Grown:
    """The tree without questions that leave a side with fewer private rows than `least`, but some.

    `mean` gives the value of a leaf from the numbers of its rows. Where these are as in the fit,
    its value stays.

    >>> y = np.array([1.0, 1.0, 2.0, 3.0, 10.0])
    >>> tree = Tree(max_depth=2).fit(Data(y[:, None], y), Stream(0))
    >>> kept = cut_back(tree, y[:, None], y > 0, 2, lambda rows: y[rows].mean())
    >>> len(tree.feature), kept.value.tolist()
    (5, [3.4, 1.0, 5.0])
    """
    kept: list[list[Any]] = [[-1, 0.0, -1, -1, None]]
    todo = [(0, 0, np.arange(len(X)), False)]
    while todo:
        node, number, rows, more = todo.pop()
        while tree.feature[node] >= 0:
            goes = X[rows, tree.feature[node]] <= tree.threshold[node]
            few_left, few_right = (
                _few(private[rows[side]], least) for side in (goes, ~goes)
            )
            if not few_left and not few_right:
                children = len(kept), len(kept) + 1
                kept[number][:4] = [tree.feature[node], tree.threshold[node], *children]
                kept += [[-1, 0.0, -1, -1, None], [-1, 0.0, -1, -1, None]]
                todo.append((int(tree.left[node]), children[0], rows[goes], more))
                todo.append((int(tree.right[node]), children[1], rows[~goes], more))
                break
            if few_left and few_right:
                break
            node = int(tree.right[node] if few_left else tree.left[node])
            more = True
        kept[number][4] = mean(rows) if more else tree.value[node]
    feature, threshold, left, right, value = zip(*kept, strict=True)
    index = (np.array(part, dtype=np.int64) for part in (feature, left, right))
    question, below, above = index
    return Grown(
        question, np.array(threshold), below, above, np.array(value, dtype=np.float64)
    )


def _few(private: Any, least: int) -> bool:
    """Whether these are some private rows, but too few."""
    return 0 < int(private.sum()) < least


def leaf_of(tree: Grown, X: Any) -> IntArray:
    """(rows,) the leaf that each row falls into."""
    at = np.zeros(len(X), dtype=np.int64)
    rows = np.arange(len(X))
    inner = tree.feature[at] >= 0
    while inner.any():
        left = X[rows, tree.feature[at]] <= tree.threshold[at]
        at = np.where(inner, np.where(left, tree.left[at], tree.right[at]), at)
        inner = tree.feature[at] >= 0
    return at


def _drawn(model: Any, weight: Array) -> list[Any]:
    """(rows,) per tree: what rows weigh in it. A forest draws them: leaves are of drawn rows."""
    if not isinstance(model, _FORESTS):
        return [weight]
    found = []
    for tree, drawn in zip(model.estimators_, model.estimators_samples_, strict=True):
        times = np.bincount(drawn, minlength=len(weight)) + 0.0
        # Newer versions of scikit-learn draw rows by their weights, older ones weigh those drawn.
        by_weight = np.isclose(
            tree.tree_.weighted_n_node_samples[0], times.sum(), rtol=1e-9
        )
        found.append(times if by_weight else times * weight)
    return found


def boosted(estimator: Any, rows: Data, private: Any, least: int) -> Plain:
    """Gradient boosting as scikit-learn does it; each tree is cut back before the next is grown."""
    X = rows.X.astype(np.float32)
    weight = rows.weight
    labels = None
    code = np.zeros(len(rows.y), dtype=np.int64)
    if isinstance(estimator, GradientBoostingClassifier):
        labels, code = np.unique(rows.y, return_inverse=True)
    base = _begin(rows, labels, code)
    truth = _truth(rows, labels, code)
    scores = np.tile(base, (len(rows.y), 1))
    draws = np.random.RandomState(estimator.random_state)
    trees: list[Grown] = []
    for _ in range(estimator.n_estimators):
        expected = _expected(scores, labels)
        for k in range(len(base)):
            missed = truth[:, k] - expected[:, k]
            one = DecisionTreeRegressor(
                max_depth=estimator.max_depth, random_state=draws
            )
            one.fit(X, missed, sample_weight=weight, check_input=False)
            tree = cut_back(_grown(one.tree_), X, private, least, _mean(missed, weight))
            at = leaf_of(tree, X)
            if labels is not None:
                found = _newton(at, missed, expected[:, k], weight, len(labels))
                tree = tree._replace(
                    value=np.pad(found, (0, len(tree.feature) - len(found)))
                )
            trees.append(tree)
            scores[:, k] += estimator.learning_rate * tree.value[at]
    link = "value" if labels is None else "sigmoid" if len(base) == 1 else "softmax"
    rate = float(estimator.learning_rate)
    return Plain(link, base, labels, None, rate, tuple(trees), len(base))


def _grown(tree: Any) -> Grown:
    feature = np.where(tree.children_left < 0, -1, tree.feature).astype(np.int64)
    left = tree.children_left.astype(np.int64)
    right = tree.children_right.astype(np.int64)
    threshold = np.where(feature < 0, 0.0, tree.threshold)
    value = tree.value[:, 0, 0].copy()
    return Grown(feature, threshold, left, right, value)


def _begin(rows: Data, labels: Array | None, code: IntArray) -> Array:
    """What boosting says before its first tree."""
    if labels is None:
        return np.array([np.average(rows.y, weights=rows.weight)])
    shares = (
        np.bincount(code, weights=rows.weight, minlength=len(labels))
        / rows.weight.sum()
    )
    chances = np.clip(shares, _EPS, 1 - _EPS)
    if len(labels) == 2:
        return np.array([np.log(chances[1] / (1 - chances[1]))])
    return np.asarray(np.log(chances) - np.log(chances).mean())


def _truth(rows: Data, labels: Array | None, code: IntArray) -> Array:
    """(rows, scores) what the scores are to come to."""
    if labels is None:
        return rows.y[:, None]
    if len(labels) == 2:
        return np.asarray(code[:, None] == 1, dtype=np.float64)
    return np.asarray(code[:, None] == np.arange(len(labels)), dtype=np.float64)


def _expected(scores: Array, labels: Array | None) -> Array:
    """(rows, scores) what the trees so far say."""
    if labels is None:
        return scores.copy()
    return np.asarray(expit(scores) if len(labels) == 2 else softmax(scores, axis=1))


def _newton(
    at: IntArray, missed: Array, chance: Array, weight: Array, classes: int
) -> Array:
    """(nodes,) of leaves that rows fall into: one Newton step toward what was missed."""
    shorter = (classes - 1) / classes if classes > 2 else 1.0
    top = shorter * np.bincount(at, weights=weight * missed)
    below = np.bincount(at, weights=weight * chance * (1 - chance))
    total = np.bincount(at, weights=weight)
    tiny = below <= 1e-150 * total
    return np.asarray(np.where(tiny, 0.0, top / np.where(tiny, 1.0, below)))
