"""Models of any family as plain arrays: a linear model here, a random forest there.

Where every device has a family of its own, what they have in common is that a model predicts. A
model is a `Plain` whatever made it, so that any device can be asked what it says, and score it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from persfl.errors import CannotMix
from persfl.learners.estimator import Estimator
from persfl.learners.linear import Linear
from persfl.learners.plain import Plain
from persfl.seeds import Stream
from persfl.traits import Traits
from persfl.types import Array, Data, Learner, Model

ANY = "any"  # the name of such models between machines
TREES = 500  # of a model, at most
DEEPEST = 30  # questions on the way down


@dataclass(frozen=True)
class AnyFamily:
    """Models of any family under one loss; `grower` makes those of a device (None: linear ones).

    >>> from persfl.learners import Tree
    >>> from persfl.seeds import stream
    >>> rows = Data(np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 3.0, 5.0]))
    >>> line = AnyFamily(grower=Linear(intercept=True)).fit(rows, stream(0))
    >>> (
    ...     family_name(line),
    ...     AnyFamily().predict(line, np.array([[4.0]])).round(6).tolist(),
    ... )
    ('linear', [9.0])
    """

    classes: int = 0
    grower: Learner | None = None

    @property
    def traits(self) -> Traits:
        """No gradients, no mean; chances where labels are classes."""
        return self._face.traits

    @property
    def _face(self) -> Estimator:
        return _face(bool(self.classes))

    def init(self, data: Data, stream: Stream) -> Plain:
        """Fitted to the device's own rows."""
        return self.fit(data, stream)

    def fit(self, data: Data, stream: Stream) -> Plain:
        """A model of the grower's family."""
        learner: Learner = self._face if self.grower is None else self.grower
        return told_plainly(learner, learner.fit(data, stream))

    def predict(self, model: Plain, X: Array) -> Array:
        """Values, or labels."""
        return self._face.predict(model, X)

    labels = predict

    def chances(self, model: Plain, X: Array) -> tuple[Array, Array]:
        """The chance of every label the model knows, and those labels."""
        return self._face.chances(model, X)

    def loss(self, model: Plain, data: Data) -> float:
        """The mean squared error, or the mean negative logarithm of the right label's chance."""
        return self._face.loss(model, data)

    def mix(self, models: Sequence[Plain], weights: Array) -> Model:
        """Models of different families have no mean."""
        raise CannotMix(
            "models of different families cannot be averaged. Use an adopter of one answer:"
            " Best(), BestOrStay()."
        )

    def check(self, model: object, features: int) -> Model:
        """A model that was handed in, if it predicts from this many features."""
        return self._face.check(model, features)


@cache
def _face(classes: bool) -> Estimator:
    """What predicts and scores: it asks a model what it says, of whatever family it is."""
    from sklearn.linear_model import LinearRegression, LogisticRegression

    return Estimator(LogisticRegression() if classes else LinearRegression())


def told_plainly(learner: Learner, model: Any) -> Plain:
    """A model of a linear learner or of scikit-learn as plain arrays.

    >>> told_plainly(Linear("logistic"), np.array([2.0])).link
    'sigmoid'
    """
    from persfl.learners.plain_families import as_plain

    if not isinstance(learner, Linear):
        return as_plain(model)
    rows = np.asarray(model).reshape(learner.classes, -1)
    width = rows.shape[1] - learner.intercept
    base = rows[:, width].copy() if learner.intercept else np.zeros(len(rows))
    slopes = np.ascontiguousarray(rows[:, :width])
    if learner.kind == "squared":
        return Plain("value", base, slopes=slopes)
    link = "sigmoid" if learner.kind == "logistic" else "softmax"
    return Plain(link, base, np.arange(float(max(len(rows), 2))), slopes)


def family_name(model: Plain) -> str:
    """The name of the family that a model's arrays are of; nobody's word for it.

    >>> family_name(Plain("value", np.ones(1), slopes=np.zeros((1, 2))))
    'constant'
    """
    if model.slopes is not None:
        return "linear" if model.slopes.any() else "constant"
    if model.trees[0].value.ndim == 1:
        return "boosting"
    return "tree" if len(model.trees) == 1 else "forest"
