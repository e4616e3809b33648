"""Models of persfl's own families: vectors of one length (linear models, networks), and trees of
five arrays each, many of them one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

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
from persfl.learners.storage.tree_arrays import (
    FORMS,
    LOOSE,
    apart,
    check_depth,
    in_a_row,
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
        assert isinstance(learner, Tree)
        tree: Grown = learner.check(Grown(**arrays), features)
        check_depth(tree, learner.max_depth)
        return tree

    def many_to(self, models: Sequence[Grown]) -> dict[str, AnyArray]:
        return prefixed("tree_", in_a_row(models))

    def many_from(
        self, arrays: Arrays, features: int | None, classes: int | None
    ) -> list[Grown]:
        """Each sound and finite; all values NaN where a device's model is not here."""
        named = under("tree_", arrays)
        check_arrays(has_form(named, LOOSE))
        if features is None:
            features = int(named["feature"].max(initial=0)) + 1
        trees = apart(named, features)
        for tree in trees:
            check_finite(np.isfinite(tree.value).all() or np.isnan(tree.value).all())
        return trees

    def fits(self, learner: Learner, model: Model, features: int) -> bool:
        return self.holds(model)
