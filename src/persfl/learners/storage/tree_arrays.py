"""Trees: five arrays each, many of them one after the other.

Whatever walks a tree trusts its indices. So none may lead out of it or back up, and none is deeper
than its learner grows them: a long chain would take long to walk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from persfl.learners.estimator import Estimator
from persfl.learners.storage.named_arrays import (
    AnyArray,
    Arrays,
    check_finite,
    check_form,
    check_names,
    check_parts,
    is_counts,
    prefixed,
    under,
)
from persfl.learners.tree import Grown, Tree

if TYPE_CHECKING:
    from persfl.types import Learner, Model

DEEPEST = 1_000  # questions on the way down, where a learner says nothing
_NUMBERS = ("threshold", "value")  # the others are indices


class TreeModels:
    """Trees of persfl's own."""

    KEY = "tree_nodes"

    def holds(self, model: Model) -> bool:
        return isinstance(model, Grown)

    def one_to(self, model: Model) -> dict[str, AnyArray]:
        return {
            name: np.asarray(part)
            for name, part in zip(Grown._fields, model, strict=True)
        }

    def one_from(
        self, learner: Learner, arrays: Arrays, features: int, classes: int
    ) -> Grown:
        check_names(arrays, set(Grown._fields))
        tree: Grown = learner.check(whole_tree(arrays), features)
        check_form(depth(tree) <= deepest(learner))
        return tree

    def many_to(self, models: Sequence[Grown]) -> dict[str, AnyArray]:
        return prefixed("tree_", in_a_row(models))

    def many_from(
        self, arrays: Arrays, features: int | None, classes: int | None
    ) -> list[Grown]:
        """Each sound and finite; all values NaN where a device's model is not here."""
        named = under("tree_", arrays)
        whole = Grown(*(named[name] for name in Grown._fields))
        for name, part in whole._asdict().items():
            check_parts(part.ndim == 1)
            check_parts(part.dtype.kind == ("f" if name in _NUMBERS else "i"))
        if features is None:
            features = int(whole.feature.max(initial=0)) + 1
        check_parts(is_counts(named["nodes"], least=1))
        trees = apart(whole, named["nodes"], features)
        for tree in trees:
            check_finite(np.isfinite(tree.value).all() or np.isnan(tree.value).all())
        return trees

    def fits(self, learner: Learner, model: Model, features: int) -> bool:
        return self.holds(model)


def in_a_row(trees: Sequence[Grown]) -> dict[str, AnyArray]:
    """How many nodes each tree has, and the nodes of all."""
    arrays: dict[str, AnyArray] = {
        "nodes": np.array([tree.feature.size for tree in trees])
    }
    for name, parts in zip(Grown._fields, zip(*trees, strict=True), strict=True):
        arrays[name] = np.concatenate(parts)
    return arrays


def apart(whole: Grown, nodes: AnyArray, features: int) -> list[Grown]:
    """The inverse of `in_a_row`; every index is checked, values are left to the caller."""
    count = len(whole.feature)
    check_form(len(nodes) > 0 and (nodes >= 1).all() and (nodes <= count).all())
    check_form(nodes.sum() == count and all(len(part) == count for part in whole))
    ends = np.cumsum(nodes)[:-1]
    pieces = zip(*(np.split(part, ends) for part in whole), strict=True)
    trees = [Grown(*parts) for parts in pieces]
    for tree in trees:
        # values may have several columns, which `check` does not know
        Tree().check(tree._replace(value=np.zeros(len(tree.feature))), features)
    return trees


def whole_tree(arrays: Arrays) -> Grown:
    """The five arrays, if they have the types of a tree."""
    tree = Grown(*(arrays[name] for name in Grown._fields))
    for name, part in tree._asdict().items():
        check_form(part.dtype == (np.float64 if name in _NUMBERS else np.int64))
        check_form(part.ndim == 1 or name == "value")
    return tree


def depth(tree: Grown) -> int:
    """How many questions the longest way down has; parents come before children."""
    found = np.zeros(len(tree.feature), dtype=np.int64)
    for i in np.flatnonzero(tree.feature >= 0).tolist():
        found[tree.left[i]] = found[tree.right[i]] = found[i] + 1
    return int(found.max())


def deepest(learner: Learner) -> int:
    """How deep a learner's trees may be."""
    if isinstance(learner, Tree):
        return learner.max_depth
    if not isinstance(learner, Estimator):
        return DEEPEST
    said = learner.estimator.get_params(deep=False).get("max_depth")
    return DEEPEST if said is None else int(said)
