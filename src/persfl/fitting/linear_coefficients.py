"""Linear models in the units of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from persfl.errors import InputError
from persfl.learners.linear import Linear
from persfl.learners.shared_trees import BoostedModels

if TYPE_CHECKING:
    from persfl.fitting.setup import Models
    from persfl.types import Array, Learner
    from persfl.units import Units


def coefficient_table(learner: Learner, units: Units, models: Models) -> Array:
    """(devices, columns + 1) the coefficients of every device, the intercept last."""
    linear = isinstance(learner, Linear) and learner.classes <= 1
    if not linear or units.kind == "centred":
        raise InputError(
            "coefficients exist for linear models with one score, in shared or raw units."
        )
    assert isinstance(learner, Linear)
    if isinstance(models, BoostedModels):
        raise InputError(
            "trees are part of these models, so coefficients do not tell what they say. Fit"
            " with method=Blend(trees=False) (command line: --set trees=false) for linear ones."
        )
    told = np.asarray(models)
    d = len(units.mean)
    slopes = told[:, :d] * units.label_scale / units.scale
    constant = told[:, d] if learner.intercept else np.zeros(len(slopes))
    level = constant * units.label_scale + units.label_mean
    return np.column_stack([slopes, level - slopes @ units.mean])
