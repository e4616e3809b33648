"""Fitted scikit-learn models as plain arrays that NumPy predicts with.

A model that came from elsewhere must not be a scikit-learn object: its trees would be walked by compiled code that trusts every
index. `as_plain` takes the arrays out of a fitted model; `Plain` predicts from them, and gives what scikit-learn gives.

    score = base + slopes'x          linear models, and those that say the same everywhere
    score = base + rate * sum of trees at x        trees, forests (rate 1 / trees), boosting
    response = link(score)

>>> from sklearn.linear_model import Ridge
>>> model = Ridge().fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0])
>>> bool(np.allclose(as_plain(model).predict(np.array([[3.0]])), model.predict([[3.0]])))
True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from persfl.errors import InputError
from persfl.learners.tree import Grown
from persfl.types import Array

LINKS = ("value", "chances", "sigmoid", "softmax")  # what a score means
_SINGLE = (DecisionTreeRegressor, DecisionTreeClassifier)
_FORESTS = (RandomForestRegressor, RandomForestClassifier, ExtraTreesRegressor, ExtraTreesClassifier)
_BOOSTED = (GradientBoostingRegressor, GradientBoostingClassifier)
_EPS = float(np.finfo(np.float32).eps)  # scikit-learn keeps chances this far from 0 and 1 before it takes log-odds


@dataclass(frozen=True, eq=False)
class Plain:
    """A model as arrays: K scores, from slopes or from trees (each tree with K values per leaf, or one for the score it adds to).

    `labels` are the classes; None for a regression. `stride` is how many trees one step of boosting has (one per score).
    """

    link: str
    base: Array  # (K,)
    labels: Array | None = None
    slopes: Array | None = None  # (K, features)
    rate: float = 1.0
    trees: Sequence[Grown] = field(default=(), repr=False)
    stride: int = 1

    def scores(self, X: Array) -> Array:
        """(rows, K)."""
        if self.slopes is not None:
            return np.asarray(X @ self.slopes.T + self.base)
        if self.trees and self.trees[0].value.ndim == 2:  # a forest: the mean over its trees
            total = np.zeros((len(X), len(self.base)))
            for tree in self.trees:
                total += _leaves(tree, X)
            return total / len(self.trees)
        total = np.tile(self.base, (len(X), 1))
        for i, tree in enumerate(self.trees):
            total[:, i % self.stride] += self.rate * _leaves(tree, X)
        return total

    def _chances(self, X: Array) -> Array:
        z = self.scores(X)
        if self.link == "sigmoid":
            one = expit(z[:, 0])
            return np.stack([1.0 - one, one], axis=1)
        return np.asarray(softmax(z, axis=1)) if self.link == "softmax" else z

    def predict(self, X: Array) -> Array:
        """(rows,) values, or labels."""
        if self.labels is None:
            return self.scores(X)[:, 0]
        return np.asarray(self.labels[self._chances(X).argmax(axis=1)])

    def __getattr__(self, name: str) -> Any:
        # As in scikit-learn, only classifiers have these: learners look whether they are there.
        if name in ("predict_proba", "classes_") and self.labels is not None:
            return self._chances if name == "predict_proba" else self.labels
        raise AttributeError(name)

    @property
    def size(self) -> int:
        """How many numbers it has, about."""
        return sum(tree.feature.size for tree in self.trees) + (0 if self.slopes is None else self.slopes.size)


def _leaves(tree: Grown, X: Array) -> Array:
    """The value of the leaf each row falls into. scikit-learn compares rows as float32."""
    at, rows = np.zeros(len(X), dtype=np.int64), np.arange(len(X))
    with np.errstate(over="ignore"):
        X = X.astype(np.float32)
    while True:
        inner = tree.feature[at] >= 0
        if not inner.any():
            return tree.value[at]
        left = X[rows, tree.feature[at]] <= tree.threshold[at]
        at = np.where(inner, np.where(left, tree.left[at], tree.right[at]), at)


def as_plain(model: Any) -> Plain:
    """The arrays of a fitted model, if it is of a family that can travel."""
    if isinstance(model, Plain):
        return model
    kind = type(model)
    labels = np.asarray(model.classes_, dtype=np.float64) if hasattr(model, "classes_") else None
    if kind is DummyRegressor:
        return Plain("value", np.asarray(model.constant_, dtype=np.float64).ravel(), slopes=np.zeros((1, model.n_features_in_)))
    if kind is DummyClassifier and labels is not None:
        return Plain("chances", np.asarray(model.class_prior_), labels, np.zeros((len(labels), model.n_features_in_)))
    if kind in _SINGLE or kind in _FORESTS:
        parts = [model] if kind in _SINGLE else model.estimators_
        trees = tuple(_grown(part.tree_, wide=True) for part in parts)
        return Plain("value" if labels is None else "chances", np.zeros(trees[0].value.shape[1]), labels, trees=trees)
    if kind in _BOOSTED:
        trees = tuple(_grown(part.tree_, wide=False) for part in model.estimators_.ravel())
        base, stride = _begin(model, labels), model.estimators_.shape[1]
        link = "value" if labels is None else "sigmoid" if stride == 1 else "softmax"
        return Plain(link, base, labels, rate=float(model.learning_rate), trees=trees, stride=stride)
    if hasattr(model, "coef_") and hasattr(model, "intercept_") and kind.__module__.startswith("sklearn.linear_model"):
        slopes = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
        base = np.broadcast_to(np.asarray(model.intercept_, dtype=np.float64), (len(slopes),)).copy()
        if labels is None or hasattr(model, "predict_proba"):
            link = "value" if labels is None else "sigmoid" if len(slopes) == 1 else "softmax"
            return Plain(link, base, labels, slopes)
    raise InputError(
        f"models of {kind.__name__} cannot travel. Use linear models, trees, forests or gradient boosting of scikit-learn."
    )


def _grown(tree: Any, *, wide: bool) -> Grown:
    value = tree.value[:, 0, :] if wide else tree.value[:, 0, 0]
    feature = np.where(tree.children_left < 0, -1, tree.feature)
    return Grown(feature.astype(np.int64), np.where(feature < 0, 0.0, tree.threshold), tree.children_left.astype(np.int64),
                 tree.children_right.astype(np.int64), np.ascontiguousarray(value, dtype=np.float64))  # fmt: skip


def _begin(model: Any, labels: Array | None) -> Array:
    """What boosting says before its first tree."""
    if isinstance(model.init_, str) or type(model.init_) not in (DummyRegressor, DummyClassifier):
        raise InputError("boosting can travel with its default init only. Leave init out.")
    if labels is None:
        return np.asarray(model.init_.constant_, dtype=np.float64).ravel()
    chances = np.clip(np.asarray(model.init_.class_prior_, dtype=np.float64), _EPS, 1 - _EPS)
    if len(labels) == 2:
        return np.array([np.log(chances[1] / (1 - chances[1]))])
    return np.asarray(np.log(chances) - np.log(chances).mean())
