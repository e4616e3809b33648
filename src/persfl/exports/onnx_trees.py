"""Trees of many devices as one ensemble: the top of every tree finds the device.

ONNX walks all trees of an ensemble for every row. A tree per device would cost as many walks as
there are devices; so the k-th trees of all devices become one, whose top is a search by the
device's number. A row is then asked log2(devices) questions more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from persfl.exports.onnx_nodes import ML, Nodes

if TYPE_CHECKING:
    from persfl.exports.fleet_parts import Forest
    from persfl.learners.shared_trees import SharedTrees
    from persfl.learners.tree import Grown
    from persfl.types import Array

_LEAF = "LEAF"
_AT_MOST = "BRANCH_LEQ"


@dataclass
class Ensemble:
    """The lists of numbers that ONNX wants of an ensemble of trees; column 0 is the switch."""

    scores: int
    tree: list[int] = field(default_factory=list)
    node: list[int] = field(default_factory=list)
    mode: list[str] = field(default_factory=list)
    column: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    right: list[int] = field(default_factory=list)
    leaf_tree: list[int] = field(default_factory=list)
    leaf_node: list[int] = field(default_factory=list)
    leaf_score: list[int] = field(default_factory=list)
    leaf_value: list[float] = field(default_factory=list)

    def begin(self, tree: int) -> int:
        """Room for one more node of a tree; its number."""
        at = len(self.node)
        number = 0 if not at or self.tree[-1] != tree else self.node[-1] + 1
        self.tree.append(tree)
        self.node.append(number)
        self.mode.append(_LEAF)
        self.column.append(0)
        self.value.append(0.0)
        self.left.append(0)
        self.right.append(0)
        return number

    def split(
        self, at: int, column: int, threshold: float, left: int, right: int
    ) -> None:
        """Make the node that stands `at` in the lists ask a question."""
        self.mode[at] = _AT_MOST
        self.column[at] = column
        self.value[at] = threshold
        self.left[at] = left
        self.right[at] = right

    def leaf(self, tree: int, node: int, score: int, value: float) -> None:
        """What a leaf adds to a score."""
        self.leaf_tree.append(tree)
        self.leaf_node.append(node)
        self.leaf_score.append(score)
        self.leaf_value.append(value)

    def write(self, nodes: Nodes, X: str) -> str:
        """(rows, scores) of rows (rows, columns), the switch first."""
        doubles = nodes.onnx.helper.make_tensor
        kind = nodes.onnx.TensorProto.DOUBLE
        values = doubles("values", kind, [len(self.value)], self.value)
        leaves = doubles("leaves", kind, [len(self.leaf_value)], self.leaf_value)
        return nodes.op(
            "TreeEnsembleRegressor",
            X,
            domain=ML,
            n_targets=self.scores,
            nodes_treeids=self.tree,
            nodes_nodeids=self.node,
            nodes_modes=self.mode,
            nodes_featureids=self.column,
            nodes_values_as_tensor=values,
            nodes_truenodeids=self.left,
            nodes_falsenodeids=self.right,
            target_treeids=self.leaf_tree,
            target_nodeids=self.leaf_node,
            target_ids=self.leaf_score,
            target_weights_as_tensor=leaves,
        )


def forests(many: Sequence[Forest], scores: int) -> Ensemble:
    """The forests of several devices; the switch says which."""
    made = Ensemble(scores)
    longest = max(len(forest.trees) for forest in many)
    for k in range(longest):
        _search(made, k, many, 0, len(many))
    return made


def _search(
    made: Ensemble, turn: int, many: Sequence[Forest], low: int, high: int
) -> int:
    """The turn-th trees of forests low to high - 1 below one node; its number."""
    if high - low == 1:
        return _copied(made, turn, many[low])
    at = len(made.node)
    number = made.begin(turn)
    middle = (low + high) // 2
    left = _search(made, turn, many, low, middle)
    right = _search(made, turn, many, middle, high)
    made.split(at, 0, middle - 0.5, left, right)
    return number


def _copied(made: Ensemble, turn: int, forest: Forest) -> int:
    """A tree as it is; a leaf of nothing where this forest has fewer trees."""
    if turn >= len(forest.trees):
        number = made.begin(turn)
        made.leaf(turn, number, 0, 0.0)
        return number
    tree: Grown = forest.trees[turn]
    first = len(made.node)
    numbers = [made.begin(turn) for _ in tree.feature]
    for i, column in enumerate(tree.feature.tolist()):
        if column >= 0:
            ways = numbers[int(tree.left[i])], numbers[int(tree.right[i])]
            made.split(first + i, column + 1, float(tree.threshold[i]), *ways)
            continue
        values = np.atleast_1d(tree.value[i])
        turns = range(len(values)) if len(values) > 1 else [turn % len(forest.columns)]
        for value, score in zip(values.tolist(), turns, strict=True):
            place = int(forest.columns[score])
            made.leaf(turn, numbers[i], place, forest.rate * value)
    return numbers[0]


def shared_ensemble(trees: SharedTrees, features: int) -> tuple[Ensemble, Array]:
    """Trees of a whole fleet, and a table (devices + 1, splits) for their questions about devices.

    ONNX cannot ask whether a device is one of a set. So each such question gets a column of its
    own, behind the row's: 0 where the device goes left, 1 where it goes right. An unknown device
    goes where scikit-learn sends what is missing.
    """
    made = Ensemble(1)
    asks: list[Array] = []
    edges = [*trees.root.tolist(), len(trees.feature)]
    place = np.append(trees.place, -1)
    bit = np.maximum(place, 0)
    for t in range(len(trees.root)):
        first = edges[t]
        for i in range(first, edges[t + 1]):
            at = len(made.node)
            number = made.begin(t)
            column = int(trees.feature[i])
            if column < 0:
                made.leaf(t, number, 0, float(trees.value[i]))
                continue
            ways = int(trees.left[i]) - first, int(trees.right[i]) - first
            side = int(trees.sides[i])
            if side < 0:
                made.split(at, column - 1, float(trees.threshold[i]), *ways)
                continue
            word = trees.goes_left[side, bit // 32] >> (bit % 32).astype(np.uint32)
            told = (word & np.uint32(1)) == 1
            left = np.where(place >= 0, told, trees.missing_left[i])
            made.split(at, features + len(asks), 0.5, *ways)
            asks.append(np.where(left, 0.0, 1.0))
    table = np.array(asks).T if asks else np.zeros((len(place), 0))
    return made, table
