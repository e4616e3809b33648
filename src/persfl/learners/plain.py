"""A fitted model as plain arrays that NumPy predicts with.

A model that came from elsewhere, over the wire or in a run folder, must not be a scikit-learn
object: rebuilding one may run code, and its trees would be walked by compiled code that trusts
every index. `persfl.learners.plain_families` takes the arrays out of a fitted model; `Plain`
predicts from them, and gives what scikit-learn gives, to the last bit.

    score = base + slopes'x          linear models, and those that say the same everywhere
    score = base + rate * sum of trees at x        trees, forests (rate 1 / trees), boosting
    response = link(score)

>>> Plain("exp", np.zeros(1), slopes=np.array([[2.0]])).predict(
...     np.zeros((1, 1))
... ).tolist()
[1.0]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, softmax

if TYPE_CHECKING:
    from persfl.learners.tree import Grown
    from persfl.types import Array

# What a score means. Those before "exp" are known on the wire; their order must stay.
LINKS = ("value", "chances", "sigmoid", "softmax", "exp", "rest", "margin")
WIRE_LINKS = LINKS[:4]


@dataclass(frozen=True, eq=False)
class Plain:
    """A model as arrays: K scores, from slopes or from trees.

    Each tree has K values per leaf, or one for the score it adds to. `labels` are the classes; None
    for a regression. `stride` is how many trees one step of boosting has (one per score). `fine`
    trees compare rows as float64; the others as float32, as scikit-learn does. With `mean` and
    `scale` a row enters as (x - mean) / scale.
    """

    link: str
    base: Array  # (K,)
    labels: Array | None = None
    slopes: Array | None = None  # (K, features)
    rate: float = 1.0
    trees: Sequence[Grown] = field(default=(), repr=False)
    stride: int = 1
    fine: bool = False
    mean: Array | None = None  # (features,)
    scale: Array | None = None

    def scores(self, X: Array) -> Array:
        """(rows, K)."""
        if self.mean is not None and self.scale is not None:
            X = (X - self.mean) / self.scale
        if self.slopes is not None:
            return np.asarray(X @ self.slopes.T + self.base)
        if not self.fine:
            with np.errstate(over="ignore"):
                X = X.astype(np.float32)
        # a forest: the mean over its trees
        if self.trees and self.trees[0].value.ndim == 2:
            total = np.zeros((len(X), len(self.base)))
            for tree in self.trees:
                total += _leaves(tree, X)
            return total / len(self.trees)
        total = np.tile(self.base, (len(X), 1))
        for i, tree in enumerate(self.trees):
            total[:, i % self.stride] += self.rate * _leaves(tree, X)
        return total

    def _chances(self, X: Array) -> Array:
        z = self.scores(X)
        if self.link == "sigmoid":
            one = expit(z[:, 0])
            return np.stack([1.0 - one, one], axis=1)
        if self.link == "rest":  # each class against the rest
            each = expit(z)
            return np.asarray(each / each.sum(axis=1, keepdims=True))
        return np.asarray(softmax(z, axis=1)) if self.link == "softmax" else z

    def predict(self, X: Array) -> Array:
        """(rows,) values, or labels."""
        if self.labels is None:
            z = self.scores(X)[:, 0]
            return np.asarray(np.exp(z)) if self.link == "exp" else z
        if len(self.base) == 1 and self.link in ("sigmoid", "margin"):
            z = self.scores(X)[:, 0]
            # decides a tie as scikit-learn does
            boosted = bool(self.trees) and not self.fine
            return np.asarray(
                self.labels[((z >= 0) if boosted else (z > 0)).astype(np.int64)]
            )
        return np.asarray(self.labels[self._chances(X).argmax(axis=1)])

    def __getattr__(self, name: str) -> Any:
        # As in scikit-learn, only classifiers have these: learners look whether they are there.
        if (
            name == "predict_proba"
            and self.labels is not None
            and self.link != "margin"
        ):
            return self._chances
        if name == "classes_" and self.labels is not None:
            return self.labels
        raise AttributeError(name)

    @property
    def size(self) -> int:
        """How many numbers it has, about."""
        nodes = sum(tree.feature.size for tree in self.trees)
        return nodes + (0 if self.slopes is None else self.slopes.size)

    def takes(self, features: int) -> bool:
        """Whether it predicts from this many features."""
        if self.mean is not None and len(self.mean) != features:
            return False
        if self.slopes is not None:
            return bool(self.slopes.shape[1] == features)
        return all(int(tree.feature.max()) < features for tree in self.trees)


def _leaves(tree: Grown, X: Array) -> Array:
    """The value of the leaf each row falls into."""
    at = np.zeros(len(X), dtype=np.int64)
    rows = np.arange(len(X))
    while True:
        inner = tree.feature[at] >= 0
        if not inner.any():
            return tree.value[at]
        left = X[rows, tree.feature[at]] <= tree.threshold[at]
        at = np.where(inner, np.where(left, tree.left[at], tree.right[at]), at)
