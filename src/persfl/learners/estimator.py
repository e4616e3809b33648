"""Any scikit-learn regressor or classifier that takes sample weights; a model is a fitted
estimator.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.pipeline import Pipeline
from sklearn.tree import BaseDecisionTree
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from persfl.checks import one_of
from persfl.errors import CannotMix, InputError
from persfl.learners.plain import Plain
from persfl.seeds import Stream
from persfl.traits import Traits
from persfl.types import Array, Data

_REGRESSION, _CLASSIFICATION = ("squared", "absolute"), ("log", "error")
# the least chance a model may give a label: a class it never saw costs much, not everything
_FLOOR = 1e-6


@dataclass(frozen=True, init=False, eq=False)
class Estimator:
    """A model family given by an unfitted scikit-learn estimator.

    `loss` is "squared" (default) or "absolute" for regressors; "log" (default where there is
    `predict_proba`) or "error" for classifiers. Where the estimator has a `random_state` that is
    None, each fit gets its own named randomness.

    >>> from sklearn.tree import DecisionTreeRegressor
    >>> learner = Estimator(DecisionTreeRegressor(max_depth=1))
    >>> data = Data(np.array([[0.0], [1.0]]), np.array([3.0, 5.0]))
    >>> from persfl.seeds import stream
    >>> learner.loss(learner.fit(data, stream(0)), data)
    0.0
    """

    estimator: Any
    kind: str
    _weigh: str  # the name under which fit takes sample weights
    # single trees let a caller who has checked the rows say so; that halves what an answer costs
    _quick: bool
    _flat: bool  # no estimators inside, so that a shallow copy is a clone
    _states: tuple[str, ...]  # parameters that take named randomness

    def __init__(self, estimator: Any, *, loss: str | None = None) -> None:
        name = type(estimator).__name__
        if not isinstance(estimator, BaseEstimator) or not (
            is_classifier(estimator) or is_regressor(estimator)
        ):
            raise InputError(
                f"estimator must be a scikit-learn regressor or classifier. Got {name}."
            )
        weigh = _weight_parameter(estimator)
        if weigh is None:
            instead = (
                "RandomForestClassifier or LogisticRegression"
                if is_classifier(estimator)
                else "RandomForestRegressor or SVR"
            )
            raise InputError(
                f"{name} does not take sample_weight in fit, which is needed to weigh private rows"
                f" against public points. Use one that does, for example {instead}."
            )
        if is_classifier(estimator):
            loss = loss or ("log" if hasattr(estimator, "predict_proba") else "error")
            one_of("loss", loss, _CLASSIFICATION)
            if loss == "log" and not hasattr(estimator, "predict_proba"):
                raise InputError(
                    f"{name} has no predict_proba, which loss='log' needs. Use loss='error'."
                )
        else:
            loss = one_of("loss", loss or "squared", _REGRESSION)
        object.__setattr__(self, "estimator", estimator)
        object.__setattr__(self, "kind", loss)
        object.__setattr__(self, "_weigh", weigh)
        object.__setattr__(self, "_quick", isinstance(estimator, BaseDecisionTree))
        object.__setattr__(
            self, "_flat", not any(hasattr(v, "get_params") for v in _parts(estimator))
        )
        # A generator object would be shared by all fits and make them depend on their order: it is
        # replaced like None.
        states = [
            k
            for k, v in estimator.get_params().items()
            if k.split("__")[-1] == "random_state" and not isinstance(v, Integral)
        ]
        object.__setattr__(self, "_states", tuple(states))

    def __repr__(self) -> str:
        return f"Estimator({self.estimator!r}, loss={self.kind!r})"

    @property
    def traits(self) -> Traits:
        """No gradients, no mean; chances where the fitted classifiers have `predict_proba`."""
        return Traits.of(self.kind, gradients=False)

    def init(self, data: Data, stream: Stream) -> Any:
        """Fitted to the device's own rows."""
        return self.fit(data, stream)

    def zeros(self, data: Data) -> Any:
        """The regressor that always says 0."""
        if is_classifier(self.estimator):
            raise InputError(
                "start='zeros' has no meaning for a classifier. Use start='own' or hand in a fitted"
                " model."
            )
        return DummyRegressor(strategy="constant", constant=0.0).fit(data.X, data.y)

    def fit(self, data: Data, stream: Stream) -> Any:
        """A fresh estimator fitted to the rows of positive weight."""
        model = self.unfitted(stream)
        used = data.weight > 0
        X, y, weight = (
            (data.X, data.y, data.weight)
            if used.all()
            else (data.X[used], data.y[used], data.weight[used])
        )
        # many classifiers refuse a single class; there is nothing to learn
        if self.kind in _CLASSIFICATION and (y == y[0]).all():
            return DummyClassifier(strategy="prior").fit(X, y)
        if self._quick:
            return model.fit(
                X.astype(np.float32), y, sample_weight=weight, check_input=False
            )
        return model.fit(X, y, **{self._weigh: weight})

    def predict(self, model: Any, X: Array) -> Array:
        """What the fitted estimator predicts: values, or labels."""
        if hasattr(model, "tree_"):
            return np.asarray(
                model.predict(X.astype(np.float32), check_input=False), dtype=np.float64
            )
        return np.asarray(model.predict(X), dtype=np.float64)

    labels = predict

    def chances(self, model: Any, X: Array) -> tuple[Array, Array]:
        """The chance of every label the model knows, and those labels."""
        if not hasattr(model, "predict_proba"):
            raise InputError(
                f"{type(model).__name__} has no predict_proba: chances of labels need it."
            )
        return np.asarray(model.predict_proba(X)), np.asarray(
            model.classes_, dtype=np.float64
        )

    def loss(self, model: Any, data: Data) -> float:
        """The weighted mean loss; inf where it is not finite."""
        if self.kind == "log":
            chances, known = self.chances(model, data.X)
            each = -np.log(
                np.clip((chances * (data.y[:, None] == known)).sum(axis=1), _FLOOR, 1.0)
            )
        else:
            miss = self.predict(model, data.X) - data.y
            with np.errstate(over="ignore"):
                each = (
                    miss**2
                    if self.kind == "squared"
                    else np.abs(miss)
                    if self.kind == "absolute"
                    else miss != 0
                )
        value = float(np.dot(each, data.weight) / data.weight.sum())
        return value if math.isfinite(value) else math.inf

    def mix(self, models: Sequence[Any], weights: Array) -> Any:
        """Fitted estimators have no mean."""
        raise CannotMix(
            f"models of {type(self.estimator).__name__} cannot be averaged. Use an adopter of one"
            " answer: Best(), BestOrStay()."
        )

    def check(self, model: Any, features: int) -> Any:
        """A handed-in fitted estimator, if it predicts from this many features."""
        try:
            if isinstance(model, Plain):
                if not model.takes(features):
                    raise InputError("it was fitted to another number of features")
            else:
                check_is_fitted(model)
            self.predict(model, np.zeros((1, features)))
        except Exception as error:
            raise InputError(
                f"a starting model must be a fitted estimator for {features} features. Got"
                f" {model!r}: {error}"
            ) from error
        return model

    def unfitted(self, stream: Stream) -> Any:
        # A shallow copy is a clone for estimators whose parameters are plain values, and much
        # cheaper than cloning.
        model = copy.copy(self.estimator) if self._flat else clone(self.estimator)
        for k, state in enumerate(self._states):
            number = stream.at("random_state", k).integer()
            if self._flat:
                model.random_state = number
            else:
                model.set_params(**{state: number})
        return model


def _parts(estimator: Any) -> list[Any]:
    """The values of an estimator's parameters, those inside lists included."""
    found: list[Any] = []
    for value in estimator.get_params(deep=False).values():
        found += (
            [v for item in value for v in (item if isinstance(item, tuple) else [item])]
            if isinstance(value, list)
            else [value]
        )
    return found


def _weight_parameter(estimator: Any) -> str | None:
    """The name under which `fit` takes sample weights."""
    if isinstance(estimator, Pipeline):
        step, last = estimator.steps[-1]
        below = _weight_parameter(last)
        return None if below is None else f"{step}__{below}"
    if has_fit_parameter(estimator, "sample_weight"):
        return "sample_weight"
    # Some take any fit parameter and hand it on (voting, grid search, transformed targets).
    inner = [
        value
        for value in _parts(estimator)
        if isinstance(value, BaseEstimator) and hasattr(value, "fit")
    ]
    takes_any = any(
        p.kind is p.VAR_KEYWORD
        for p in inspect.signature(estimator.fit).parameters.values()
    )
    return (
        "sample_weight"
        if takes_any
        and inner
        and all(_weight_parameter(part) == "sample_weight" for part in inner)
        else None
    )
