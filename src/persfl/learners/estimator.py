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
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from persfl.checks import one_of
from persfl.errors import CannotMix, InputError
from persfl.learners.plain import Plain
from persfl.traits import Traits, tells_chances

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from persfl.seeds import Stream
    from persfl.types import AnyArray, Array, Data, Model

_REGRESSION = ("squared", "absolute")
_CLASSIFICATION = ("log", "error")
# the least chance a model may give a label: a class it never saw costs much, not everything
_FLOOR = 1e-6


@runtime_checkable
class Configurable(Protocol):
    """Something with parameters as scikit-learn has them."""

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...


@dataclass(frozen=True, init=False, eq=False)
class Estimator:
    """A model family given by an unfitted scikit-learn estimator.

    `loss` is "squared" (default) or "absolute" for regressors; "log" (default where there is
    `predict_proba`) or "error" for classifiers. Where the estimator has a `random_state` that is
    None, each fit gets its own named randomness.

    >>> from sklearn.tree import DecisionTreeRegressor
    >>> learner = Estimator(DecisionTreeRegressor(max_depth=1))
    >>> from persfl import Data
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

    def __init__(self, estimator: BaseEstimator, *, loss: str | None = None) -> None:
        from sklearn.base import BaseEstimator, is_classifier, is_regressor
        from sklearn.tree import BaseDecisionTree

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
            likely = tells_chances(estimator)
            loss = one_of(
                "loss", loss or ("log" if likely else "error"), _CLASSIFICATION
            )
            if loss == "log" and not likely:
                raise InputError(
                    f"{name} has no predict_proba, which loss='log' needs. Use loss='error'."
                )
        else:
            loss = one_of("loss", loss or "squared", _REGRESSION)
        # A generator object would be shared by all fits and make them depend on their order: it is
        # replaced like None.
        states = [
            name
            for name, value in estimator.get_params().items()
            if name.split("__")[-1] == "random_state"
            and not isinstance(value, Integral)
        ]
        vars(self).update(
            estimator=estimator,
            kind=loss,
            _weigh=weigh,
            _quick=isinstance(estimator, BaseDecisionTree),
            _flat=not any(isinstance(v, Configurable) for v in _parts(estimator)),
            _states=tuple(states),
        )

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
        from sklearn.base import is_classifier
        from sklearn.dummy import DummyRegressor

        if is_classifier(self.estimator):
            raise InputError(
                "start='zeros' has no meaning for a classifier. Use start='own' or hand in a fitted"
                " model."
            )
        return DummyRegressor(strategy="constant", constant=0.0).fit(data.X, data.y)

    def fit(self, data: Data, stream: Stream) -> Any:
        """A fresh estimator fitted to the rows of positive weight."""
        from sklearn.dummy import DummyClassifier

        model = self.unfitted(stream)
        used = data.weight > 0
        X = data.X
        y = data.y
        weight = data.weight
        if not used.all():
            X = X[used]
            y = y[used]
            weight = weight[used]
        # many classifiers refuse a single class; there is nothing to learn
        if self.kind in _CLASSIFICATION and (y == y[0]).all():
            return DummyClassifier(strategy="prior").fit(X, y)
        if self._quick:
            narrow = X.astype(np.float32)
            return model.fit(narrow, y, sample_weight=weight, check_input=False)
        return model.fit(X, y, **{self._weigh: weight})

    def predict(self, model: Model, X: Array) -> Array:
        """What the fitted estimator predicts: values, or labels."""
        from sklearn.tree import BaseDecisionTree

        if isinstance(model, BaseDecisionTree):
            said = model.predict(X.astype(np.float32), check_input=False)
        else:
            said = model.predict(X)
        return np.asarray(said, dtype=np.float64)

    labels = predict

    def chances(self, model: Model, X: Array) -> tuple[Array, Array]:
        """The chance of every label the model knows, and those labels."""
        if not tells_chances(model):
            raise InputError(
                f"{type(model).__name__} has no predict_proba: chances of labels need it."
            )
        labels = np.asarray(model.classes_, dtype=np.float64)
        return np.asarray(model.predict_proba(X)), labels

    def loss(self, model: Model, data: Data) -> float:
        """The weighted mean loss; inf where it is not finite."""
        if self.kind == "log":
            chances, known = self.chances(model, data.X)
            right = (chances * (data.y[:, None] == known)).sum(axis=1)
            each = -np.log(np.clip(right, _FLOOR, 1.0))
        else:
            each = self._misses(self.predict(model, data.X) - data.y)
        value = float(np.dot(each, data.weight) / data.weight.sum())
        return value if math.isfinite(value) else math.inf

    def _misses(self, away: Array) -> AnyArray:
        """What each response costs."""
        with np.errstate(over="ignore"):
            if self.kind == "squared":
                return away**2
            return np.abs(away) if self.kind == "absolute" else away != 0

    def mix(self, models: Sequence[Model], weights: Array) -> Model:
        """Fitted estimators have no mean."""
        raise CannotMix(
            f"models of {type(self.estimator).__name__} cannot be averaged. Use an adopter of one"
            " answer: Best(), BestOrStay()."
        )

    def check(self, model: Model, features: int) -> Model:
        """A handed-in fitted estimator, if it predicts from this many features."""
        from sklearn.utils.validation import check_is_fitted

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
        from sklearn.base import clone

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


def _parts(estimator: BaseEstimator) -> list[object]:
    """The values of an estimator's parameters, those inside lists included."""
    found: list[object] = []
    for value in estimator.get_params(deep=False).values():
        for item in value if isinstance(value, list) else [value]:
            # the steps of a pipeline are tuples in a list
            inside = isinstance(value, list) and isinstance(item, tuple)
            found += item if inside else [item]
    return found


def _weight_parameter(estimator: BaseEstimator) -> str | None:
    """The name under which `fit` takes sample weights."""
    from sklearn.base import BaseEstimator
    from sklearn.pipeline import Pipeline
    from sklearn.utils.validation import has_fit_parameter

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
    fit = inspect.signature(estimator.fit)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in fit.parameters.values())
    hands_on = all(_weight_parameter(part) == "sample_weight" for part in inner)
    return "sample_weight" if takes_any and inner and hands_on else None
