"""Fitted scikit-learn models as plain arrays that NumPy predicts with.

A model that came from elsewhere, over the wire or in a run folder, must not be a scikit-learn
object: rebuilding one may run code, and its trees would be walked by compiled code that trusts
every index. `as_plain` takes the arrays out of a fitted model; `Plain` predicts from them, and
gives what scikit-learn gives, to the last bit.

    score = base + slopes'x          linear models, and those that say the same everywhere
    score = base + rate * sum of trees at x        trees, forests (rate 1 / trees), boosting
    response = link(score)

>>> from sklearn.linear_model import Ridge
>>> model = Ridge().fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0])
>>> bool(
...     np.array_equal(
...         as_plain(model).predict(np.array([[3.0]])), model.predict([[3.0]])
...     )
... )
True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import expit, logit, softmax
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import (
    ARDRegression,
    BayesianRidge,
    ElasticNet,
    ElasticNetCV,
    GammaRegressor,
    HuberRegressor,
    Lasso,
    LassoCV,
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
    Perceptron,
    PoissonRegressor,
    QuantileRegressor,
    Ridge,
    RidgeClassifier,
    RidgeClassifierCV,
    RidgeCV,
    SGDClassifier,
    SGDRegressor,
    TweedieRegressor,
)
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC, LinearSVR
from sklearn.tree import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreeClassifier,
    ExtraTreeRegressor,
)

from persfl.errors import InputError
from persfl.learners.tree import Grown
from persfl.types import Array

# What a score means. Those before "exp" are known on the wire; their order must stay.
LINKS = ("value", "chances", "sigmoid", "softmax", "exp", "rest", "margin")
WIRE_LINKS = LINKS[:4]
_SINGLE = (
    DecisionTreeRegressor,
    DecisionTreeClassifier,
    ExtraTreeRegressor,
    ExtraTreeClassifier,
)
_FORESTS = (
    RandomForestRegressor,
    RandomForestClassifier,
    ExtraTreesRegressor,
    ExtraTreesClassifier,
)
_BOOSTED = (GradientBoostingRegressor, GradientBoostingClassifier)
_BINNED = (HistGradientBoostingRegressor, HistGradientBoostingClassifier)
_LINES = (
    LinearRegression,
    Ridge,
    RidgeCV,
    Lasso,
    LassoCV,
    ElasticNet,
    ElasticNetCV,
    BayesianRidge,
    ARDRegression,
    HuberRegressor,
    QuantileRegressor,
    SGDRegressor,
    LinearSVR,
)
_COUNTS = (PoissonRegressor, GammaRegressor, TweedieRegressor)
_LOGISTIC = (LogisticRegression, LogisticRegressionCV)
_SIDES = (SGDClassifier, RidgeClassifier, RidgeClassifierCV, Perceptron, LinearSVC)
FAMILIES = (
    *_SINGLE,
    *_FORESTS,
    *_BOOSTED,
    *_BINNED,
    *_LINES,
    *_COUNTS,
    *_LOGISTIC,
    *_SIDES,
)
# scikit-learn keeps chances this far from 0 and 1
_EPS = float(np.finfo(np.float32).eps)


@dataclass(frozen=True, eq=False)
class Plain:
    """A model as arrays: K scores, from slopes or from trees.

    Each tree has K values per leaf, or one for the score it adds to. `labels` are the classes; None
    for a regression. `stride` is how many trees one step of boosting has (one per score). `fine`
    trees compare rows as float64; the others as float32, as scikit-learn does. With `mean` and
    `scale` a row enters as (x - mean) / scale.
    """

    link: str
    base: Array  # (K,)
    labels: Array | None = None
    slopes: Array | None = None  # (K, features)
    rate: float = 1.0
    trees: Sequence[Grown] = field(default=(), repr=False)
    stride: int = 1
    fine: bool = False
    mean: Array | None = None  # (features,)
    scale: Array | None = None

    def scores(self, X: Array) -> Array:
        """(rows, K)."""
        if self.mean is not None and self.scale is not None:
            X = (X - self.mean) / self.scale
        if self.slopes is not None:
            return np.asarray(X @ self.slopes.T + self.base)
        if not self.fine:
            with np.errstate(over="ignore"):
                X = X.astype(np.float32)
        # a forest: the mean over its trees
        if self.trees and self.trees[0].value.ndim == 2:
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
        if self.link == "rest":  # each class against the rest
            each = expit(z)
            return np.asarray(each / each.sum(axis=1, keepdims=True))
        return np.asarray(softmax(z, axis=1)) if self.link == "softmax" else z

    def predict(self, X: Array) -> Array:
        """(rows,) values, or labels."""
        if self.labels is None:
            z = self.scores(X)[:, 0]
            return np.asarray(np.exp(z)) if self.link == "exp" else z
        if len(self.base) == 1 and self.link in ("sigmoid", "margin"):
            z = self.scores(X)[:, 0]
            # decides a tie as scikit-learn does
            boosted = bool(self.trees) and not self.fine
            return np.asarray(
                self.labels[((z >= 0) if boosted else (z > 0)).astype(np.int64)]
            )
        return np.asarray(self.labels[self._chances(X).argmax(axis=1)])

    def __getattr__(self, name: str) -> Any:
        # As in scikit-learn, only classifiers have these: learners look whether they are there.
        if (
            name == "predict_proba"
            and self.labels is not None
            and self.link != "margin"
        ):
            return self._chances
        if name == "classes_" and self.labels is not None:
            return self.labels
        raise AttributeError(name)

    @property
    def size(self) -> int:
        """How many numbers it has, about."""
        nodes = sum(tree.feature.size for tree in self.trees)
        return nodes + (0 if self.slopes is None else self.slopes.size)

    def takes(self, features: int) -> bool:
        """Whether it predicts from this many features."""
        if self.mean is not None and len(self.mean) != features:
            return False
        if self.slopes is not None:
            return bool(self.slopes.shape[1] == features)
        return all(int(tree.feature.max()) < features for tree in self.trees)


def _leaves(tree: Grown, X: Array) -> Array:
    """The value of the leaf each row falls into."""
    at, rows = np.zeros(len(X), dtype=np.int64), np.arange(len(X))
    while True:
        inner = tree.feature[at] >= 0
        if not inner.any():
            return tree.value[at]
        left = X[rows, tree.feature[at]] <= tree.threshold[at]
        at = np.where(inner, np.where(left, tree.left[at], tree.right[at]), at)


def as_plain(model: Any) -> Plain:
    """The arrays of a fitted model, if it is of a family that has them."""
    if isinstance(model, Plain):
        return model
    kind = type(model)
    if kind is Pipeline:
        return _scaled(model)
    refuse_others(model)
    labels = None
    if hasattr(model, "classes_"):
        labels = np.asarray(model.classes_, dtype=np.float64)
    if kind is DummyRegressor:
        base = np.asarray(model.constant_, dtype=np.float64).ravel()
        return Plain("value", base, slopes=np.zeros((1, model.n_features_in_)))
    if kind is DummyClassifier and labels is not None:
        flat = np.zeros((len(labels), model.n_features_in_))
        return Plain("chances", np.asarray(model.class_prior_), labels, flat)
    if kind in _SINGLE or kind in _FORESTS:
        parts = [model] if kind in _SINGLE else model.estimators_
        trees = tuple(_grown(part.tree_, wide=True) for part in parts)
        link = "value" if labels is None else "chances"
        return Plain(link, np.zeros(trees[0].value.shape[1]), labels, trees=trees)
    if kind in _BOOSTED:
        trees = tuple(
            _grown(part.tree_, wide=False) for part in model.estimators_.ravel()
        )
        base, stride = _begin(model, labels), model.estimators_.shape[1]
        link = "value" if labels is None else "sigmoid" if stride == 1 else "softmax"
        rate = float(model.learning_rate)
        return Plain(link, base, labels, rate=rate, trees=trees, stride=stride)
    if kind in _BINNED:
        return _binned(model, labels)
    return _line(model, labels)


def refuse_others(estimator: Any, where: str = "cannot travel") -> None:
    """Stop where an estimator, fitted or not, is of a family that cannot be told as plain arrays.

    >>> from sklearn.svm import SVR
    >>> refuse_others(SVR(), where="cannot be kept")
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: models of SVR cannot be kept. Use linear models, ... of scikit-learn.
    """
    kind = type(estimator)
    if kind is Pipeline:
        steps = [step for _, step in estimator.steps]
        if (
            len(steps) != 2
            or type(steps[0]) is not StandardScaler
            or estimator.memory is not None
        ):
            raise InputError(
                f"models of this Pipeline {where}. Use a scaler and an estimator."
            )
        refuse_others(steps[1], where)
        return
    if kind not in (*FAMILIES, DummyRegressor, DummyClassifier):
        others = "linear models, trees, forests or gradient boosting of scikit-learn"
        raise InputError(f"models of {kind.__name__} {where}. Use {others}.")
    if kind in _BOOSTED and getattr(estimator, "init", None) is not None:
        raise InputError(f"boosting with an init of your own {where}. Leave init out.")
    odd = _odd_setting(estimator)
    if odd is not None:
        raise InputError(
            f"models of {kind.__name__} with {odd} {where}. Leave {odd} out."
        )


def _odd_setting(estimator: Any) -> str | None:
    """A setting under which a model predicts in a way that is not known here."""
    kind = type(estimator)
    if kind is GradientBoostingClassifier and estimator.loss == "exponential":
        return "loss='exponential'"
    if kind is SGDClassifier and estimator.loss == "modified_huber":
        return "loss='modified_huber'"
    if kind in _BINNED:
        named = estimator.categorical_features
        if named is not None and not (isinstance(named, str) and named == "from_dtype"):
            return "categorical_features"
    if kind in _LOGISTIC and getattr(estimator, "multi_class", "auto") == "multinomial":
        return "multi_class"
    return None


def _line(model: Any, labels: Array | None) -> Plain:
    """A linear model."""
    slopes = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
    level = np.asarray(model.intercept_, dtype=np.float64)
    base = np.broadcast_to(level, (len(slopes),)).copy()
    if labels is None:
        return Plain("exp" if _of_logarithms(model) else "value", base, None, slopes)
    link = "softmax"
    if not hasattr(model, "predict_proba"):
        link = "margin"
    elif len(slopes) == 1:
        link = "sigmoid"
    elif type(model) is SGDClassifier or _one_against_the_rest(model):
        link = "rest"
    return Plain(link, base, labels, slopes)


def _of_logarithms(model: Any) -> bool:
    """Whether a linear model gives the logarithm of what it predicts."""
    if type(model) is TweedieRegressor and model.link == "auto":
        return bool(model.power > 0)
    return type(model) in _COUNTS and getattr(model, "link", "log") != "identity"


def _one_against_the_rest(model: Any) -> bool:
    """Whether a logistic regression takes classes one by one, as older versions may."""
    several = getattr(model, "multi_class", "auto")
    usual = several in ("auto", "deprecated")
    return bool(several == "ovr" or (usual and model.solver == "liblinear"))


def _scaled(model: Pipeline) -> Plain:
    """A StandardScaler and an estimator behind it."""
    refuse_others(model)
    scaler, last = (step for _, step in model.steps)
    plain = as_plain(last)
    d = scaler.n_features_in_
    mean = np.zeros(d) if scaler.mean_ is None or not scaler.with_mean else scaler.mean_
    scale = np.ones(d) if scaler.scale_ is None else scaler.scale_
    return replace(plain, mean=np.asarray(mean), scale=np.asarray(scale))


def _grown(tree: Any, *, wide: bool) -> Grown:
    value = tree.value[:, 0, :] if wide else tree.value[:, 0, 0]
    feature = np.where(tree.children_left < 0, -1, tree.feature)
    return Grown(
        feature.astype(np.int64),
        np.where(feature < 0, 0.0, tree.threshold),
        tree.children_left.astype(np.int64),
        tree.children_right.astype(np.int64),
        np.ascontiguousarray(value, dtype=np.float64),
    )


def _binned(model: Any, labels: Array | None) -> Plain:
    """Boosting of binned values; its leaves hold the learning rate already."""
    stride = int(model.n_trees_per_iteration_)
    trees = tuple(
        _grown_binned(tree.nodes) for step in model._predictors for tree in step
    )
    base = np.asarray(model._baseline_prediction, dtype=np.float64).ravel()
    link = "exp" if model.loss in ("poisson", "gamma") else "value"
    if labels is not None:
        link = "sigmoid" if stride == 1 else "softmax"
    return Plain(link, base, labels, trees=trees, stride=stride, fine=True)


def _grown_binned(nodes: Any) -> Grown:
    leaf = nodes["is_leaf"].astype(bool)
    if (nodes["is_categorical"].astype(bool) & ~leaf).any():
        raise InputError(
            "models of boosting with categories cannot travel. Leave them out."
        )
    return Grown(
        np.where(leaf, -1, nodes["feature_idx"]).astype(np.int64),
        np.where(leaf, 0.0, nodes["num_threshold"]),
        np.where(leaf, -1, nodes["left"]).astype(np.int64),
        np.where(leaf, -1, nodes["right"]).astype(np.int64),
        np.ascontiguousarray(nodes["value"], dtype=np.float64),
    )


def _begin(model: Any, labels: Array | None) -> Array:
    """What boosting says before its first tree."""
    if isinstance(model.init_, str) or type(model.init_) not in (
        DummyRegressor,
        DummyClassifier,
    ):
        raise InputError(
            "boosting can travel with its default init only. Leave init out."
        )
    if labels is None:
        return np.asarray(model.init_.constant_, dtype=np.float64).ravel()
    chances = np.clip(
        np.asarray(model.init_.class_prior_, dtype=np.float64), _EPS, 1 - _EPS
    )
    if len(labels) == 2:
        return np.array([logit(chances[1])])
    return np.asarray(np.log(chances / np.exp(np.log(chances).mean())))
