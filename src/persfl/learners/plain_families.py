"""The families of scikit-learn whose fitted models are plain arrays, and what reads them out.

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

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from scipy.special import logit
from sklearn import ensemble, svm
from sklearn import linear_model as linear
from sklearn import tree as tree_models
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from persfl.errors import InputError
from persfl.learners.plain import Plain
from persfl.learners.tree import Grown

if TYPE_CHECKING:
    from persfl.types import Array

_SINGLE = (
    tree_models.DecisionTreeRegressor,
    tree_models.DecisionTreeClassifier,
    tree_models.ExtraTreeRegressor,
    tree_models.ExtraTreeClassifier,
)
_FORESTS = (
    ensemble.RandomForestRegressor,
    ensemble.RandomForestClassifier,
    ensemble.ExtraTreesRegressor,
    ensemble.ExtraTreesClassifier,
)
_BOOSTED = (ensemble.GradientBoostingRegressor, ensemble.GradientBoostingClassifier)
_BINNED = (
    ensemble.HistGradientBoostingRegressor,
    ensemble.HistGradientBoostingClassifier,
)
_COUNTS = (linear.PoissonRegressor, linear.GammaRegressor, linear.TweedieRegressor)
_LOGISTIC = (linear.LogisticRegression, linear.LogisticRegressionCV)
_LINES = (
    linear.LinearRegression,
    linear.Ridge,
    linear.RidgeCV,
    linear.Lasso,
    linear.LassoCV,
    linear.ElasticNet,
    linear.ElasticNetCV,
    linear.BayesianRidge,
    linear.ARDRegression,
    linear.HuberRegressor,
    linear.QuantileRegressor,
    linear.SGDRegressor,
    svm.LinearSVR,
    *_COUNTS,
    *_LOGISTIC,
    linear.SGDClassifier,
    linear.RidgeClassifier,
    linear.RidgeClassifierCV,
    linear.Perceptron,
    svm.LinearSVC,
)
FAMILIES = (*_SINGLE, *_FORESTS, *_BOOSTED, *_BINNED, *_LINES)
# scikit-learn keeps chances this far from 0 and 1
_EPS = float(np.finfo(np.float32).eps)


def as_plain(model: object) -> Plain:
    """The arrays of a fitted model, if it is of a family that has them."""
    if isinstance(model, Plain):
        return model
    refuse_others(model)
    if isinstance(model, Pipeline):
        return _scaled(model)
    classes = isinstance(model, ClassifierMixin)
    labels = _numbers(model.classes_) if classes else None  # type: ignore[attr-defined]
    return _READERS[type(model)](model, labels)


def refuse_others(estimator: object, where: str = "cannot travel") -> None:
    """Stop where an estimator, fitted or not, is of a family that cannot be told as plain arrays.

    >>> from sklearn.svm import SVR
    >>> refuse_others(SVR(), where="cannot be kept")
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: models of SVR cannot be kept. Use linear models, ... of scikit-learn.
    """
    kind = type(estimator)
    if kind is Pipeline:
        _refuse_other_steps(cast(Pipeline, estimator), where)
        return
    if kind not in _READERS:
        others = "linear models, trees, forests or gradient boosting of scikit-learn"
        raise InputError(f"models of {kind.__name__} {where}. Use {others}.")
    settings = cast(BaseEstimator, estimator).get_params(deep=False)
    if kind in _BOOSTED and settings["init"] is not None:
        raise InputError(f"boosting with an init of your own {where}. Leave init out.")
    odd = _odd_setting(kind, settings)
    if odd is not None:
        raise InputError(
            f"models of {kind.__name__} with {odd} {where}. Leave {odd} out."
        )


def _refuse_other_steps(pipeline: Pipeline, where: str) -> None:
    steps = [step for _, step in pipeline.steps]
    scaled = len(steps) == 2 and type(steps[0]) is StandardScaler
    if not scaled or pipeline.memory is not None:
        raise InputError(
            f"models of this Pipeline {where}. Use a scaler and an estimator."
        )
    refuse_others(steps[1], where)


def _odd_setting(kind: type, settings: Mapping[str, object]) -> str | None:
    """A setting under which a model predicts in a way that is not known here."""
    loss = settings.get("loss")
    if kind is ensemble.GradientBoostingClassifier and loss == "exponential":
        return "loss='exponential'"
    if kind is linear.SGDClassifier and loss == "modified_huber":
        return "loss='modified_huber'"
    if kind in _BINNED:
        named = settings["categorical_features"]
        if named is not None and not (isinstance(named, str) and named == "from_dtype"):
            return "categorical_features"
    if kind in _LOGISTIC and settings.get("multi_class") == "multinomial":
        return "multi_class"
    return None


# Readers: from a fitted model of a family, and its labels (None: a regression)


def _constant(model: Any, labels: Array | None) -> Plain:
    """What says the same everywhere."""
    base = _numbers(model.constant_ if labels is None else model.class_prior_).ravel()
    flat = np.zeros((len(base), model.n_features_in_))
    return Plain("value" if labels is None else "chances", base, labels, flat)


def _forest(model: Any, labels: Array | None) -> Plain:
    """One tree, or the mean of many."""
    parts = [model] if type(model) in _SINGLE else model.estimators_
    trees = tuple(_grown(part.tree_, wide=True) for part in parts)
    link = "value" if labels is None else "chances"
    return Plain(link, np.zeros(trees[0].value.shape[1]), labels, trees=trees)


def _boosted(model: Any, labels: Array | None) -> Plain:
    """Trees that are added up, `stride` of them in each step."""
    each = model.estimators_
    rate = float(model.learning_rate)
    trees = tuple(_grown(part.tree_, wide=False) for part in each.ravel())
    stride = each.shape[1]
    base = _before_boosting(model, labels)
    link = _link_of_boosting(labels, stride)
    return Plain(link, base, labels, rate=rate, trees=trees, stride=stride)


def _binned(model: Any, labels: Array | None) -> Plain:
    """Boosting of binned values; its leaves hold the learning rate already."""
    stride = int(model.n_trees_per_iteration_)
    trees = tuple(
        _grown_binned(tree.nodes) for step in model._predictors for tree in step
    )
    base = _numbers(model._baseline_prediction).ravel()
    link = _link_of_boosting(labels, stride)
    if model.loss in ("poisson", "gamma"):
        link = "exp"
    return Plain(link, base, labels, trees=trees, stride=stride, fine=True)


def _line(model: Any, labels: Array | None) -> Plain:
    """A linear model."""
    slopes = np.atleast_2d(_numbers(model.coef_))
    base = np.broadcast_to(_numbers(model.intercept_), (len(slopes),)).copy()
    if labels is None:
        return Plain("exp" if _of_logarithms(model) else "value", base, None, slopes)
    by_one = type(model) is linear.SGDClassifier
    if type(model) not in _LOGISTIC and not (by_one and model.loss == "log_loss"):
        link = "margin"  # no chances
    elif len(slopes) == 1:
        link = "sigmoid"
    else:
        link = "rest" if by_one or _one_against_the_rest(model) else "softmax"
    return Plain(link, base, labels, slopes)


def _scaled(model: Pipeline) -> Plain:
    """A StandardScaler and an estimator behind it."""
    scaler, last = (step for _, step in model.steps)
    width = scaler.n_features_in_
    mean = np.zeros(width)
    if scaler.with_mean and scaler.mean_ is not None:
        mean = scaler.mean_
    scale = np.ones(width) if scaler.scale_ is None else scaler.scale_
    return replace(as_plain(last), mean=np.asarray(mean), scale=np.asarray(scale))


_READERS: dict[type, Callable[[Any, Array | None], Plain]] = {
    kind: reader
    for kinds, reader in (
        ((DummyRegressor, DummyClassifier), _constant),
        ((*_SINGLE, *_FORESTS), _forest),
        (_BOOSTED, _boosted),
        (_BINNED, _binned),
        (_LINES, _line),
    )
    for kind in kinds
}


def _numbers(values: Any) -> Array:
    return np.asarray(values, dtype=np.float64)


def _of_logarithms(model: Any) -> bool:
    """Whether a linear model gives the logarithm of what it predicts."""
    if type(model) is not linear.TweedieRegressor:
        return type(model) in _COUNTS
    return bool(model.power > 0) if model.link == "auto" else model.link != "identity"


def _one_against_the_rest(model: BaseEstimator) -> bool:
    """Whether a logistic regression takes classes one by one, as older versions may."""
    settings = model.get_params(deep=False)
    several = settings.get("multi_class", "auto")
    usual = several in ("auto", "deprecated")
    return bool(several == "ovr" or (usual and settings["solver"] == "liblinear"))


def _link_of_boosting(labels: Array | None, stride: int) -> str:
    if labels is None:
        return "value"
    return "sigmoid" if stride == 1 else "softmax"


def _before_boosting(model: Any, labels: Array | None) -> Array:
    """What boosting says before its first tree."""
    if type(model.init_) not in (DummyRegressor, DummyClassifier):
        raise InputError(
            "boosting can travel with its default init only. Leave init out."
        )
    if labels is None:
        return _numbers(model.init_.constant_).ravel()
    chances = np.clip(_numbers(model.init_.class_prior_), _EPS, 1 - _EPS)
    if len(labels) == 2:
        return np.array([logit(chances[1])])
    return np.asarray(np.log(chances / np.exp(np.log(chances).mean())))


def _grown(tree: Any, *, wide: bool) -> Grown:
    """A tree of scikit-learn's; `wide` with a value per score in every leaf."""
    value = tree.value[:, 0, :] if wide else tree.value[:, 0, 0]
    leaf = tree.children_left < 0
    return Grown(
        np.where(leaf, -1, tree.feature).astype(np.int64),
        np.where(leaf, 0.0, tree.threshold),
        tree.children_left.astype(np.int64),
        tree.children_right.astype(np.int64),
        np.ascontiguousarray(value, dtype=np.float64),
    )


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
