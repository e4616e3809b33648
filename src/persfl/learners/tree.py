"""Regression trees as plain arrays: what scikit-learn's `DecisionTreeRegressor` grows, many times
faster on a device's few rows.

At each node the split (feature, threshold) with the smallest weighted squared error is taken:

    max over splits of  (sum_left w y)^2 / (sum_left w) + (sum_right w y)^2 / (sum_right w)

Fitting a small scikit-learn tree is mostly checks and set-up; Algorithm 2 fits hundreds of
thousands of them. With numba the same tree is grown by a compiled kernel; without it scikit-learn
grows it. Either way a model is five arrays that can be checked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from persfl.checks import whole
from persfl.compiled import kernels
from persfl.errors import CannotMix, InputError
from persfl.traits import Traits

if TYPE_CHECKING:
    from persfl.seeds import Stream
    from persfl.types import Array, Data, IntArray


class Grown(NamedTuple):
    """A tree of `len(feature)` nodes, the root first: a leaf has feature -1; a row with
    x[feature] <= threshold goes left.
    """

    feature: IntArray
    threshold: Array
    left: IntArray
    right: IntArray
    value: Array


@dataclass(frozen=True)
class Tree:
    """A regression tree of limited depth under squared loss. Ties between features are broken at
    random, as scikit-learn does.

    >>> from persfl.seeds import stream
    >>> from persfl import Data
    >>> data = Data(
    ...     np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([1.0, 1.0, 5.0, 7.0])
    ... )
    >>> model = Tree(max_depth=1).fit(data, stream(0))
    >>> float(model.threshold[0]), Tree().predict(model, data.X).tolist()
    (1.5, [1.0, 1.0, 6.0, 6.0])
    """

    max_depth: int = 3

    def __post_init__(self) -> None:
        whole("max_depth", self.max_depth, least=1, most=30)

    @property
    def traits(self) -> Traits:
        """Trees of numbers: no gradients, no mean."""
        return Traits.of("squared", gradients=False)

    def init(self, data: Data, stream: Stream) -> Grown:
        """Fitted to the device's own rows."""
        return self.fit(data, stream)

    def zeros(self, data: Data) -> Grown:
        """The tree that always says 0."""
        none = np.array([-1])
        return Grown(none, np.zeros(1), none, none, np.zeros(1))

    def fit(self, data: Data, stream: Stream) -> Grown:
        """Grow a tree on the rows of positive weight."""
        from sklearn.tree import DecisionTreeRegressor

        used = data.weight > 0
        X, y, weight = (
            (data.X, data.y, data.weight)
            if used.all()
            else (data.X[used], data.y[used], data.weight[used])
        )
        fast = kernels()
        if fast is None:
            tree = (
                DecisionTreeRegressor(
                    max_depth=self.max_depth, random_state=stream.integer()
                )
                .fit(X, y, sample_weight=weight)
                .tree_
            )
            feature = np.where(tree.children_left < 0, -1, tree.feature)
            return Grown(
                feature,
                tree.threshold,
                tree.children_left,
                tree.children_right,
                tree.value[:, 0, 0],
            )
        nodes = min(2 ** (self.max_depth + 1) - 1, 2 * len(y) - 1)
        index = np.full((3, nodes), -1)
        numbers = np.zeros((2, nodes))
        order = np.argsort(stream.at("features").uniform(X.shape[1]))
        count = fast.grow(
            np.ascontiguousarray(X),
            np.ascontiguousarray(y),
            np.ascontiguousarray(weight),
            self.max_depth,
            order,
            index,
            numbers,
        )
        index = index[:, :count]
        numbers = numbers[:, :count]
        return Grown(index[0], numbers[0], index[1], index[2], numbers[1])

    def predict(self, model: Grown, X: Array) -> Array:
        """The value of the leaf that each row falls into."""
        at = np.zeros(len(X), dtype=np.int64)
        rows = np.arange(len(X))
        for _ in range(self.max_depth + 1 if len(model.feature) > 1 else 0):
            inner = model.feature[at] >= 0
            if not inner.any():
                break
            left = X[rows, model.feature[at]] <= model.threshold[at]
            at = np.where(inner, np.where(left, model.left[at], model.right[at]), at)
        return model.value[at]

    labels = predict

    def loss(self, model: Grown, data: Data) -> float:
        """The weighted mean squared error."""
        with np.errstate(over="ignore"):
            value = float(
                np.dot((self.predict(model, data.X) - data.y) ** 2, data.weight)
                / data.weight.sum()
            )
        return value if math.isfinite(value) else math.inf

    def mix(self, models: object, weights: Array) -> Grown:
        """Trees have no mean."""
        raise CannotMix(
            "trees cannot be averaged. Use an adopter of one answer: Best(), BestOrStay()."
        )

    def check(self, model: object, features: int) -> Grown:
        """A tree from elsewhere, if it is one: indices in range, one parent before every node
        but the root, finite numbers.
        """
        parts: Any = model
        try:
            with np.errstate(invalid="ignore"):
                feature, left, right = (
                    np.asarray(parts[i], dtype=np.int64) for i in (0, 2, 3)
                )
            threshold, value = (np.asarray(parts[i], dtype=np.float64) for i in (1, 4))
        except (TypeError, ValueError, IndexError, KeyError):
            raise InputError(
                "a tree must be five arrays: feature, threshold, left, right, value. Got"
                f" {type(model).__name__}."
            ) from None
        n = feature.size
        inner = feature >= 0
        arrays = (feature, threshold, left, right, value)
        even = n > 0 and all(part.shape == (n,) for part in arrays)
        children = np.empty(0)
        if even:
            children = np.concatenate([left[inner], right[inner]])
        sound = (
            even
            and np.isfinite(threshold).all()
            and np.isfinite(value).all()
            and bool(((feature >= -1) & (feature < features)).all())
            and np.array_equal(np.sort(children), np.arange(1, n))
            and bool((np.tile(np.flatnonzero(inner), 2) < children).all())
        )
        if not sound:
            raise InputError(
                f"this is not a sound tree over {features} features: its nodes, indices or numbers"
                " do not fit together."
            )
        return Grown(feature, threshold, left, right, value)
