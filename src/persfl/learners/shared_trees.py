"""Boosted trees of the whole fleet, with the device as a category, as plain arrays.

scikit-learn grows them (`persfl.methods.mixed.grown_trees`). They are kept as arrays, because a run
folder must not hold objects; what they say is what scikit-learn says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from persfl.compiled import kernels_for
from persfl.learners.vector_models import VectorModels
from persfl.types import Array, IntArray

WORDS = 8  # of 32 bits, one bit a category
ABSENT = 1e-4  # the chance of a class that trees have seen no row of


@dataclass(frozen=True, eq=False)
class SharedTrees:
    """Trees whose leaves are added up; the first column of a row is its device.

    `place` (devices,) is the category of a device, -1 for one that the trees do not know.
    Nodes stand one after the other, tree by tree; `root` (trees,) is where each begins. A node with
    `feature` -1 is a leaf. `left` and `right` are places among all nodes. `sides` (nodes,) is which
    row of `goes_left` (kinds of splits, WORDS) says which categories go left, -1 for a threshold.
    """

    base: float
    place: IntArray
    root: IntArray
    feature: IntArray
    threshold: Array
    left: IntArray
    right: IntArray
    missing_left: NDArray[np.bool_]
    value: Array
    sides: IntArray
    goes_left: NDArray[np.uint32]

    def predict(self, X: Array, owner: IntArray) -> Array:
        """(rows,) of rows and their devices; -1 for a device that was not there."""
        known = np.append(self.place, -1)[owner]
        fast = kernels_for(len(X) * len(self.root))
        if fast is not None:
            found = np.empty(len(X))
            if fast.walk(np.ascontiguousarray(X), known, *self._plain, found):
                return np.asarray(self.base + found)
        # tree by tree, so that leaves are added in the same order
        found = np.zeros(len(X))
        for root in self.root.tolist():
            found += self.value[self._leaves(X, known, root)]
        return np.asarray(self.base + found)

    @cached_property
    def _plain(self) -> tuple[object, ...]:
        """What the compiled kernel is given, of the types that it knows."""
        whole = (self.feature, self.left, self.right, self.sides, self.root)
        links = tuple(np.ascontiguousarray(each, dtype=np.int64) for each in whole)
        real = (self.threshold, self.value)
        numbers = tuple(np.ascontiguousarray(each, dtype=np.float64) for each in real)
        missing = np.ascontiguousarray(self.missing_left, dtype=np.uint8)
        sets = np.ascontiguousarray(self.goes_left, dtype=np.uint32)
        return links, numbers, missing, sets

    def _leaves(self, X: Array, known: IntArray, root: int) -> IntArray:
        """(rows,) the leaf of one tree that each row comes to."""
        rows = np.arange(len(X))
        bit = np.maximum(known, 0)
        at = np.full(len(X), root)
        while True:
            feature = self.feature[at]
            inner = feature >= 0
            if not inner.any():
                return at
            left = X[rows, np.maximum(feature - 1, 0)] <= self.threshold[at]
            side = self.sides[at]
            word = self.goes_left[np.maximum(side, 0), bit // 32]
            told = (word >> (bit % 32).astype(np.uint32)) & np.uint32(1)
            by_device = np.where(known >= 0, told == 1, self.missing_left[at])
            left = np.where(side >= 0, by_device, left)
            at = np.where(inner, np.where(left, self.left[at], self.right[at]), at)


WeighedTrees = tuple[tuple[float, SharedTrees], ...]  # each with its share


@dataclass(frozen=True, eq=False)
class ClassTrees:
    """Trees of each class that had rows; of two classes those of the second alone."""

    trees: tuple[SharedTrees, ...]
    there: IntArray
    classes: int

    def log_chances(self, X: Array, owner: IntArray) -> Array:
        """(rows, classes) of rows and their devices; -1 for a device that was not there."""
        raw = np.stack([each.predict(X, owner) for each in self.trees], axis=1)
        return spread_classes(raw, self.there, self.classes)


def spread_classes(raw: Array, there: IntArray, classes: int) -> Array:
    """(rows, classes) log chances from scores of the classes that are there.

    >>> spread_classes(np.zeros((1, 1)), np.array([0, 2]), 3).round(2).tolist()
    [[-0.69, -9.21, -0.69]]
    """
    if raw.shape[1] == 1:
        raw = np.column_stack([np.zeros(len(raw)), raw])
    found = np.full((len(raw), classes), np.log(ABSENT))
    found[:, there] = log_softmax(raw, axis=1)
    return np.asarray(log_softmax(found, axis=1))


def trees_of_a_set(there: IntArray) -> int:
    """How many trees tell of these classes; of two one is enough.

    >>> trees_of_a_set(np.array([0, 2])), trees_of_a_set(np.array([0, 1, 2]))
    (1, 3)
    """
    return 1 if len(there) == 2 else len(there)


@dataclass(frozen=True, eq=False)
class BoostedModels(VectorModels):
    """Linear models, one vector per device, and trees of the whole fleet that are added to them.

    `trees` are (share, trees). Devices that are `alone` have their vector and nothing else. As a
    sequence these are the vectors.
    """

    trees: WeighedTrees
    alone: NDArray[np.bool_]
    there: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The classes that the trees tell of, each by trees of its own (of two classes the second
    alone), in as many sets behind each other as there are shares; none for numbers.
    """

    def added(self, X: Array, owner: IntArray) -> Array:
        """(rows,) what the trees add to what the vectors say."""
        found = np.zeros(len(X))
        for share, trees in self.trees:
            found += share * trees.predict(X, owner)
        return np.where(self._alone(owner), 0.0, found)

    def log_added(self, X: Array, owner: IntArray, classes: int) -> Array:
        """(rows, classes) what the trees add to the log chances of classes."""
        found = np.zeros((len(X), classes))
        for share, each in self.of_classes(classes):
            found += share * each.log_chances(X, owner)
        return np.where(self._alone(owner)[:, None], 0.0, found)

    def of_classes(self, classes: int) -> list[tuple[float, ClassTrees]]:
        """Sets of trees that tell of all classes that are there, each with its share."""
        wide = trees_of_a_set(self.there)
        found = []
        for k in range(0, len(self.trees), wide):
            some = self.trees[k : k + wide]
            trees = tuple(each for _, each in some)
            found.append((some[0][0], ClassTrees(trees, self.there, classes)))
        return found

    def _alone(self, owner: IntArray) -> NDArray[np.bool_]:
        return np.append(self.alone, False)[owner]  # -1: was not there
