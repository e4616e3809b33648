"""Classes: `PersonalizedClassifier`."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets

from persfl.checks import some
from persfl.errors import InputError
from persfl.estimators.online import Online
from persfl.learners import Linear
from persfl.types import Array


class PersonalizedClassifier(ClassifierMixin, Online):  # type: ignore[misc]
    """A classifier for every device, learned from own rows and from peers who really help.

    Parameters and attributes are those of `PersonalizedRegressor`; the default model is logistic
    (two classes) or multinomial regression, and `classes_` are the labels in order. A device need
    not have rows of every class.

    >>> from persfl.datasets import load_flights
    >>> flights = load_flights()
    >>> X, y, where = flights.data, flights.target, flights.devices
    >>> model = PersonalizedClassifier(rounds=30, holdout=0).fit(X, y, devices=where)
    >>> model.predict_proba(X[:1], devices=where[:1]).shape
    (1, 3)
    >>> bool(model.score(X, y, devices=where) > 0.6)
    True
    """

    _numeric = False

    @property
    def _classes(self) -> int:
        return len(self.classes_)

    def predict(self, X: Any, devices: Any = None) -> Any:
        """(rows,) the likeliest class of each row by its own device's model."""
        answers = self._answers(X, devices)
        return self.classes_[answers.argmax(axis=1)]

    def predict_proba(self, X: Any, devices: Any = None) -> Array:
        """(rows, classes) the chance of each class, in the order of `classes_`."""
        return self._answers(X, devices)

    def score(
        self, X: Any, y: Any, devices: Any = None, sample_weight: Any = None
    ) -> float:
        """The share of right labels over all rows."""
        return float(
            accuracy_score(
                y, self.predict(X, devices=devices), sample_weight=sample_weight
            )
        )

    def _linear(self) -> Linear:
        if len(self.classes_) == 2:
            return Linear("logistic", intercept=True)
        return Linear("multinomial", classes=len(self.classes_), intercept=True)

    def _first_classes(self, y: Any, classes: Any) -> None:
        if classes is not None:
            self.classes_ = np.unique(classes)
        elif hasattr(self, "classes_"):
            del self.classes_

    def _learn_labels(self, y: Any, classes: Any) -> Array:
        check_classification_targets(y)
        if classes is None:
            self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise InputError(
                "a classifier needs at least 2 classes. Got 1 class:"
                f" {self.classes_.tolist()[0]!r}."
            )
        return self._labels(y)

    def _labels(self, y: Any) -> Array:
        y = np.asarray(y)
        place = np.searchsorted(self.classes_, y)
        place = np.minimum(place, len(self.classes_) - 1)
        strange = self.classes_[place] != y
        if strange.any():
            raise InputError(
                f"label {some(np.unique(y[strange]).tolist())} is not one of the classes"
                f" {some(self.classes_.tolist(), 10)}. Name all classes at the first call of"
                " partial_fit: classes=[...]."
            )
        return np.asarray(place, dtype=np.float64)
