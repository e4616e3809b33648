"""Models of persfl's own families: vectors of one length (linear models, networks), and trees of
five arrays each, many of them one after the other.

Whatever walks a tree trusts its indices. So none may lead out of it or back up, and none is deeper
than its learner grows them: a long chain would take long to walk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from persfl.errors import InputError
from persfl.learners import any_family
from persfl.learners.any_family import AnyFamily
from persfl.learners.estimator import Estimator
from persfl.learners.storage.named_arrays import (
    AnyArray,
    Arrays,
    check_arrays,
    check_finite,
    check_form,
    has_form,
    prefixed,
    under,
)
from persfl.learners.tree import Grown, Tree
from persfl.traits import has_gradients, has_tensors

if TYPE_CHECKING:
    from persfl.types import Array, Learner, Model


class Vectors:
    """Vectors of one length."""

    KEY = "models"

    def holds(self, model: Model) -> bool:
        return isinstance(model, np.ndarray)

    def one_to(self, model: Model) -> dict[str, AnyArray]:
        return {"vector": np.asarray(model)}

    def one_from(
        self, learner: Learner, arrays: Arrays, features: int, classes: int
    ) -> Model:
        dtype = learner.dtype if has_tensors(learner) else "float64"
        check_form(set(arrays) == {"vector"} and arrays["vector"].dtype == dtype)
        return learner.check(arrays["vector"], features)

    def many_to(self, models: Sequence[Model] | Array) -> dict[str, AnyArray]:
        if not isinstance(models, np.ndarray):
            models = np.stack(list(models))
        return {self.KEY: models}

    def many_from(
        self, arrays: Arrays, features: int | None, classes: int | None
    ) -> Array:
        """Each finite, or all NaN where a device's model is not here."""
        models = arrays[self.KEY]
        check_arrays(has_form(arrays, {self.KEY: "f8|f4 T S"}))
        known = np.isfinite(models).all(axis=1) | np.isnan(models).all(axis=1)
        check_finite(known.all())
        return models

    def fits(self, learner: Learner, model: Model, features: int) -> bool:
        return (
            self.holds(model)
            and has_gradients(learner)
            and model.shape == (learner.size(features),)
        )


DEEPEST = 100  # questions on the way down, where a learner says nothing
MOST_TREES = 5_000  # of a model, where a learner says nothing
FORMS = {
    "feature": "i8 N",
    "threshold": "f8 N",
    "left": "i8 N",
    "right": "i8 N",
    "value": "f8 N",
}
# In a run folder whole numbers may be those of another machine.
_LOOSE = {name: form.replace("8", "") for name, form in FORMS.items()} | {
    "nodes": "i T"
}


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
        check_form(set(arrays) == set(FORMS) and has_form(arrays, FORMS))
        tree: Grown = learner.check(Grown(**arrays), features)
        check_depth(tree, deepest(learner))
        return tree

    def many_to(self, models: Sequence[Grown]) -> dict[str, AnyArray]:
        return prefixed("tree_", in_a_row(models))

    def many_from(
        self, arrays: Arrays, features: int | None, classes: int | None
    ) -> list[Grown]:
        """Each sound and finite; all values NaN where a device's model is not here."""
        named = under("tree_", arrays)
        check_arrays(has_form(named, _LOOSE))
        if features is None:
            features = int(named["feature"].max(initial=0)) + 1
        trees = apart(named, features)
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


def apart(arrays: Arrays, features: int) -> list[Grown]:
    """The inverse of `in_a_row`; every index is checked, values are left to the caller."""
    nodes = arrays["nodes"]
    count = len(arrays["feature"])
    # each before their sum: a sum of absurd numbers may be any number
    check_form(len(nodes) > 0 and ((nodes >= 1) & (nodes <= count)).all())
    check_form(nodes.sum() == count)
    ends = np.cumsum(nodes)[:-1]
    pieces = [np.split(arrays[name], ends) for name in Grown._fields]
    trees = [Grown(*parts) for parts in zip(*pieces, strict=True)]
    for tree in trees:
        # values may have several columns, which `check` does not know
        Tree().check(tree._replace(value=np.zeros(len(tree.feature))), features)
    return trees


def check_depth(tree: Grown, most: int) -> None:
    """Stop where a tree is deeper than this."""
    # one of so few nodes cannot be
    if len(tree.feature) <= 2 * most + 1:
        return
    found = depth(tree)
    if found > most:
        raise InputError(
            f"a tree of this family asks at most {most} questions on the way down. Got one of"
            f" {found}."
        )


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
    if isinstance(learner, AnyFamily):
        return any_family.DEEPEST
    said = _setting(learner, "max_depth")
    return DEEPEST if said is None else int(said)


def most_trees(learner: Learner, classes: int) -> int:
    """How many trees a learner's models may have: boosting grows one for each of several classes
    in every step.
    """
    if isinstance(learner, AnyFamily):
        return any_family.TREES
    steps = _setting(learner, "n_estimators")
    boosts = _setting(learner, "learning_rate") is not None
    if steps is None:
        return MOST_TREES if boosts else 1
    return min(int(steps) * (classes if boosts and classes > 2 else 1), MOST_TREES)


def _setting(learner: Learner, name: str) -> Any:
    """What a wrapped estimator says, if it has such a setting."""
    if not isinstance(learner, Estimator):
        return None
    return learner.estimator.get_params(deep=False).get(name)
