"""Classes: `PersonalizedClassifier`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score

from persfl.estimators.base import Personalized
from persfl.fitting.schema import Ids, Table
from persfl.types import Array


class PersonalizedClassifier(ClassifierMixin, Personalized):  # type: ignore[misc]
    """A classifier for every device, learned from own rows and from peers who really help.

    Parameters and attributes are those of `PersonalizedRegressor`; the default model is logistic
    (two classes) or multinomial regression, and `classes_` are the labels in order. A device need
    not have rows of every class.

    >>> from persfl.datasets import load_flights
    >>> flights = load_flights()
    >>> X, y, where = flights.data, flights.target, flights.devices
    >>> from persfl.methods import Paper
    >>> model = PersonalizedClassifier(method=Paper(rounds=30), holdout=0)
    >>> model = model.fit(X, y, devices=where)
    >>> model.predict_proba(X[:1], devices=where[:1]).shape
    (1, 3)
    >>> bool(model.score(X, y, devices=where) > 0.6)
    True
    """

    numeric = False

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, in order."""
        classes = self.fitted_.schema.labels.classes
        assert classes is not None  # a classifier's labels have some
        return classes

    def predict(self, X: Table, devices: Ids = None) -> NDArray[Any]:
        """(rows,) the likeliest class of each row by its own device's model."""
        chances = self._responses(X, devices)
        return np.asarray(self.classes_[chances.argmax(axis=1)])

    def predict_proba(self, X: Table, devices: Ids = None) -> Array:
        """(rows, classes) the chance of each class, in the order of `classes_`."""
        return self._responses(X, devices)

    def score(
        self,
        X: Table,
        y: ArrayLike,
        devices: Ids = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """The share of right labels over all rows."""
        predicted = self.predict(X, devices=devices)
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))
