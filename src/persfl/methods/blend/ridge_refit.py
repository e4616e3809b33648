"""A refit whose public points carry a prior: Algorithm 2's question, in closed form.

    b = argmin_w  sum over own rows of (y - x'w)^2  +  sum_j strength_j (w_j - mean_j)^2

For a linear model the public points +a_j e_j and -a_j e_j, labelled by the target's model, have a
diagonal Gram matrix, so fitting rows and points together is ridge regression toward that model,
with a strength of its own for every coefficient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from persfl.errors import InputError
from persfl.learners.linear import Linear
from persfl.proposers import Refit
from persfl.proposers.gradient import distance
from persfl.seeds import Stream
from persfl.types import Array, Data, Learner


@dataclass(frozen=True, eq=False)
class Toward:
    """Refits of a linear model under squared loss, drawn toward the target's model with `strength`
    (one number per coefficient).

    >>> from persfl import Linear
    >>> learner, rows = (
    ...     Linear(intercept=True),
    ...     Data(np.array([[1.0], [3.0]]), np.array([2.0, 6.0])),
    ... )
    >>> asked = Toward(np.array([2.0, 4.0]))
    >>> asked.answer(
    ...     learner, asked.ask(learner, np.array([1.0, 0.0])), rows, None
    ... ).round(3).tolist()
    [1.786, 0.143]
    >>> same = asked.refit()
    >>> same.answer(learner, same.ask(learner, np.array([1.0, 0.0])), rows, None).round(
    ...     3
    ... ).tolist()
    [1.786, 0.143]
    """

    strength: Array

    def __post_init__(self) -> None:
        if self.strength.ndim != 1 or not (
            np.isfinite(self.strength).all() and (self.strength > 0).all()
        ):
            raise InputError(
                f"strength must be a positive number per coefficient. Got {self.strength!r}."
            )

    def refit(self, intercept: bool = True) -> Refit:
        """The same question as public points: two per feature, as far out as its strength asks
        for.
        """
        slopes, constant = (
            (self.strength[:-1], self.strength[-1])
            if intercept
            else (self.strength, float(len(self.strength)))
        )
        d = len(slopes)
        points = np.diag(np.sqrt(slopes * d / constant))
        return Refit(
            np.concatenate([points, -points]),
            private_weight=1.0,
            public_weight=float(constant / (2 * d)),
        )

    def ask(self, learner: Learner, model: Array) -> Array:
        """The model: its labels at the points would tell as much."""
        if not isinstance(learner, Linear) or learner.kind != "squared":
            raise InputError(
                f"Toward asks linear models under squared loss. Got {learner!r}: use Refit(public)."
            )
        if model.shape[-1] != len(self.strength):
            raise InputError(
                f"there must be one strength per coefficient. Got {len(self.strength)} for"
                f" {model.shape[-1]}."
            )
        return model

    def answer(
        self, learner: Learner, probe: Array, data: Data, stream: Stream | None
    ) -> Array:
        """(..., size) the refitted weights."""
        assert isinstance(learner, Linear)
        gram, pull = moments(learner, data)
        return drawn(gram, pull, probe, self.strength)

    def length(self, learner: Learner, probe: Array, proposal: Array) -> Any:
        """The Euclidean distance moved."""
        return distance(probe, proposal)

    def advice(self) -> str:
        return "the refitted models overflow: standardize the features and labels"


def design(learner: Linear, X: Array) -> Array:
    """Rows as the model sees them: with a column of ones where there is an intercept."""
    return (
        np.concatenate([X, np.ones((*X.shape[:-1], 1))], axis=-1)
        if learner.intercept
        else X
    )


def moments(learner: Linear, data: Data) -> tuple[Array, Array]:
    """Weighted sums X'X and X'y over the rows."""
    X = design(learner, data.X)
    weighted = np.swapaxes(X * data.weight[..., None], -1, -2)
    return np.matmul(weighted, X), np.matmul(weighted, data.y[..., None])[..., 0]


def drawn(gram: Array, pull: Array, toward: Array, strength: Array) -> Array:
    """(..., size) the ridge solution drawn toward a model; `strength` (..., size) broadcasts."""
    left = gram + strength[..., None] * np.eye(gram.shape[-1])
    right = np.broadcast_to(pull + strength * toward, left.shape[:-1])
    return np.asarray(np.linalg.solve(left, right[..., None])[..., 0])
