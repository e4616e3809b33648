"""One device's model as a plain scikit-learn estimator, without persfl."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.linear_model import LinearRegression, LogisticRegression

from persfl.errors import InputError
from persfl.exports.one_device import device_place
from persfl.learners.estimator import Estimator
from persfl.learners.linear import Linear
from persfl.learners.near_rows import refuse_rows
from persfl.learners.shared_trees import BoostedModels

if TYPE_CHECKING:
    from persfl.fitting.fitted import Fitted
    from persfl.types import Array


def plain_estimator(fitted: Fitted, device: Hashable) -> Any:
    """What scikit-learn would have given for this device: coefficients in the table's own units.

    Linear models become `LinearRegression` or `LogisticRegression`.

    >>> from persfl import PersonalizedRegressor
    >>> X = np.array([[0.0], [1.0], [2.0], [0.0], [1.0], [2.0]])
    >>> y = np.array([0.0, 1.0, 2.0, 5.0, 5.0, 5.0])
    >>> fit = PersonalizedRegressor(method="own", holdout=0).fit(
    ...     X, y, devices=list("aaabbb")
    ... )
    >>> plain_estimator(fit.fitted_, "a").predict([[3.0]]).round(2).tolist()
    [3.0]
    """
    i = device_place(fitted, device)
    if fitted.schema.preparation is not None:
        raise InputError(
            "this table has categories or gaps, which one plain estimator does not read. Export"
            " ONNX instead: it takes the table's own columns."
        )
    learner = fitted.learner
    models = fitted.models
    refuse_rows(models)
    if isinstance(models, BoostedModels) and not models.alone[i]:
        raise InputError(
            "trees of the whole fleet are part of these models, so no plain estimator says the"
            " same. Export ONNX, or fit with --set trees=false."
        )
    if not isinstance(learner, Linear) or learner.kind not in _PLAIN:
        what = type(learner).__name__
        hint = " Its models are scikit-learn's: fitted.models." * isinstance(
            learner, Estimator
        )
        raise InputError(
            f"a plain estimator exists for linear models of numbers and classes. Got {what}.{hint}"
        )
    return _linear(fitted, learner, i)


_PLAIN = ("squared", "absolute", "huber", "logistic", "multinomial")


def _linear(fitted: Fitted, learner: Linear, i: int) -> Any:
    """A scikit-learn model with these coefficients."""
    units = fitted.units
    rows = np.asarray(fitted.models[i]).reshape(learner.classes, -1)
    d = len(units.scale)
    owner = np.array([i])
    centre = units.centres[i] if units.kind == "centred" else units.mean
    W: Array = rows[:, :d] / units.scale
    constant: Array = rows[:, d] if learner.intercept else np.zeros(len(rows))
    constant = constant - W @ centre
    made: Any
    if fitted.classes:
        made = LogisticRegression()
        made.classes_ = fitted.schema.labels.classes
        made.coef_ = W
        made.intercept_ = constant
    else:
        level = units.outside(np.zeros(1), owner)
        steep = units.outside(np.ones(1), owner) - level
        made = LinearRegression()
        made.coef_ = (W * steep)[0]
        made.intercept_ = float(constant[0] * steep[0] + level[0])
    made.n_features_in_ = d
    if fitted.schema.names is not None:
        made.feature_names_in_ = np.array(fitted.schema.names, dtype=object)
    return made
