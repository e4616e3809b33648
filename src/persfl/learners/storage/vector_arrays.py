"""Models that are vectors of one length: linear models and networks."""

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
)
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
