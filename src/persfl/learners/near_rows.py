"""A shared model, and beside it what the nearest of each device's own rows were called.

    response = (1 - share_i) f(x) + share_i * sum_j K(x, x_j) y_j / sum_j K(x, x_j)
    K(x, x_j) = weight_j * exp(-|g(x) - g(x_j)| / scale_i)       over the k nearest own rows j

g is what a row is to the shared model before its last layer; a linear model has no such layer, and
rows are taken as they are. Models of this kind hold their device's rows, as g sees them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from persfl.errors import InputError
from persfl.learners.network import Network
from persfl.learners.vector_models import VectorModels
from persfl.types import Array, IntArray, Learner

_NUMBERS = 2**22  # distances at a time
_HARDLY = 1e-100  # what a row of weight 0 weighs


@dataclass(frozen=True, eq=False)
class NearRows(VectorModels):
    """`vectors` (n, size) is each device's model, `common` (size,) the one that sees rows.

    `seen` (rows, width) are own rows as it sees them, device by device from `start` (n + 1,), with
    their `label` and `weight`; `share` (n,) is how much the nearest count, `scale` (n,) how far is
    near. As a sequence these are the vectors.
    """

    common: Array
    seen: Array
    label: Array
    weight: Array
    start: IntArray
    share: Array
    scale: Array
    k: int

    def check(self, learner: Learner, features: int) -> None:
        """Stop where rows were seen by another model than this learner's."""
        wide = as_seen(learner, self.common, np.zeros((1, features))).shape[1]
        if wide != self.seen.shape[1]:
            raise InputError(
                f"rows that were seen must have {wide} numbers. Got {self.seen.shape[1]}."
            )

    def mixed(
        self, learner: Learner, said: Array, X: Array, owner: IntArray, classes: int
    ) -> Array:
        """What vectors say of these rows, mixed with what the nearest own rows were called."""
        found = said.copy()
        for i in np.unique(owner[self.share[owner] > 0]).tolist():
            rows = np.flatnonzero(owner == i)
            own = slice(int(self.start[i]), int(self.start[i + 1]))
            shown = as_seen(learner, self.common, X[rows])
            near = called(
                shown,
                self.seen[own],
                self.label[own],
                self.weight[own],
                k=self.k,
                scale=float(self.scale[i]),
                classes=classes,
            )
            found[rows] += self.share[i] * (near - said[rows])
        return found


def as_seen(learner: Learner, model: Array, X: Array) -> Array:
    """(rows, width) what rows are to a model before its last layer."""
    if isinstance(learner, Network):
        from persfl.learners.network_body import before_last

        return before_last(learner, model, X)
    return X


def called(
    X: Array,
    seen: Array,
    label: Array,
    weight: Array,
    *,
    k: int,
    scale: float,
    classes: int,
) -> Array:
    """(rows,) means of the k nearest labels, or with `classes` (rows, classes) their shares.

    A row of weight 0 counts where there is no other near.

    >>> seen = np.array([[0.0], [1.0], [9.0]])
    >>> two = {"k": 2, "scale": 1.0, "classes": 0}
    >>> called(
    ...     np.array([[0.5]]), seen, np.array([1.0, 3.0, 8.0]), np.ones(3), **two
    ... ).tolist()
    [2.0]
    """
    truth = label[:, None]
    if classes:
        truth = (label[:, None] == np.arange(classes)) + 0.0
    many = min(k, len(seen))
    heavy = np.maximum(weight, _HARDLY)
    out = np.empty((len(X), truth.shape[1]))
    step = max(1, _NUMBERS // max(1, len(seen)))
    for begin in range(0, len(X), step):
        part = slice(begin, begin + step)
        far = distances(X[part], seen)
        near = np.argpartition(far, many - 1, axis=1)[:, :many]
        away = np.take_along_axis(far, near, axis=1)
        # from the nearest on: of rows far from all the nearest still count
        kernel = np.exp(-(away - away.min(axis=1, keepdims=True)) / scale)
        kernel = kernel * heavy[near]
        out[part] = np.einsum("rk,rkc->rc", kernel, truth[near])
        out[part] /= kernel.sum(axis=1, keepdims=True)
    return out if classes else out[:, 0]


def distances(X: Array, Z: Array) -> Array:
    """(rows of X, rows of Z) how far they are apart."""
    square = (X**2).sum(axis=1)[:, None] + (Z**2).sum(axis=1) - 2 * X @ Z.T
    return np.asarray(np.sqrt(np.maximum(square, 0.0)))


def refuse_rows(models: object) -> None:
    """Stop where models that are to be handed on hold rows of their devices."""
    if isinstance(models, NearRows):
        raise InputError(
            "models of knn-per hold rows of their devices, and are not exported. Predict from the"
            " run folder."
        )
