"""Ridge regression of devices with fewer rows than coefficients: by products of rows.

    b = t + S^-1 Z' a,     (I + Z S^-1 Z') a = z - Z t

`Z` and `z` are the rows and labels times the roots of their weights, `t` is the model drawn toward,
`S` the strengths. It is the same answer as that of `toward.drawn`, for a matrix as large as the
rows are many instead of the coefficients: the work grows with the number of features, not with its
cube. And `a` is what the answer leaves of the labels, times the root of the weight; the diagonal of
the inverse is 1 minus the row's leverage times its weight.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from persfl.learners.linear import Linear
from persfl.methods.blend.ridge_refit import design
from persfl.types import Array, Data, IntArray


class Thin(NamedTuple):
    """Rows (..., rows, size) and labels (..., rows), both times the roots of the `weight`s."""

    rows: Array
    labels: Array
    weight: Array

    @staticmethod
    def of(learner: Linear, data: Data) -> Thin:
        """The rows of these devices."""
        root = np.sqrt(data.weight)
        return Thin(
            design(learner, data.X) * root[..., None], data.y * root, data.weight
        )

    def at(self, who: IntArray) -> Thin:
        """Those of some devices."""
        return Thin(self.rows[who], self.labels[who], self.weight[who])

    def inverse(self, strength: Array) -> Array:
        """(..., rows, rows) of I + Z S^-1 Z'; `strength` (..., size) broadcasts."""
        products = np.matmul(
            self.rows / strength[..., None, :], np.swapaxes(self.rows, -1, -2)
        )
        return np.asarray(np.linalg.inv(np.eye(products.shape[-1]) + products))

    def drawn(self, inverse: Array, toward: Array, strength: Array) -> Array:
        """(..., size) as `toward.drawn`.

        >>> from persfl import Linear
        >>> from persfl.methods.blend.ridge_refit import drawn, moments
        >>> rng = np.random.default_rng(0)
        >>> data = Data(rng.normal(size=(3, 9)), rng.normal(size=3))
        >>> thin, strength = Thin.of(Linear(), data), np.full(9, 0.5)
        >>> found = thin.drawn(thin.inverse(strength), np.ones(9), strength)
        >>> bool(
        ...     np.allclose(
        ...         found, drawn(*moments(Linear(), data), np.ones(9), strength)
        ...     )
        ... )
        True
        """
        back = np.matmul(self._left(inverse, toward)[..., None, :], self.rows)[
            ..., 0, :
        ]
        return np.asarray(toward + back / strength)

    def rough(self, inverse: Array, toward: Array) -> Array:
        """(...) as `prior.noise_of`, of the answers drawn toward this model."""
        diagonal = np.diagonal(inverse, axis1=-2, axis2=-1)
        leverage = (1.0 - diagonal) / np.where(self.weight > 0, self.weight, 1.0)
        each = self._left(inverse, toward) ** 2 / np.maximum(1.0 - leverage, 1e-6)
        return np.asarray(
            np.maximum(each.sum(axis=-1) / self.weight.sum(axis=-1), 1e-5)
        )

    def _left(self, inverse: Array, toward: Array) -> Array:
        """(..., rows) what the answer leaves of the labels."""
        first = self.labels - np.matmul(self.rows, toward[..., None])[..., 0]
        return np.asarray(np.matmul(inverse, first[..., None])[..., 0])


def thin(learner: Linear, counts: IntArray, features: int) -> NDArray[np.bool_]:
    """Which devices, by their numbers of rows, have fewer of them than a model has coefficients."""
    return np.asarray(counts < learner.size(features))
