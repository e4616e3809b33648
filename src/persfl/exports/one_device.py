"""A fit with one of its devices alone, so that nobody else's model is in what is made of it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from persfl.checks import some
from persfl.errors import InputError
from persfl.learners.near_rows import refuse_rows
from persfl.learners.shared_trees import BoostedModels

if TYPE_CHECKING:
    from persfl.fitting.fitted import Fitted
    from persfl.fitting.setup import Models


def device_place(fitted: Fitted, device: Hashable) -> int:
    """Where a device stands; ids may be typed, so a text finds a number that looks like it."""
    known = fitted.devices.tolist()
    if device in known:
        return int(known.index(device))
    texts = [str(name) for name in known]
    if isinstance(device, str) and texts.count(device) == 1:
        return texts.index(device)
    raise InputError(f"there is no device {device!r}. Known: {some(known)}.")


def only_device(fitted: Fitted, device: Hashable) -> Fitted:
    """The fit of this device, without a model for newcomers."""
    i = device_place(fitted, device)
    units = fitted.units
    here = replace(
        units, centres=units.centres[[i]], label_centres=units.label_centres[[i]]
    )
    return replace(
        fitted,
        devices=fitted.devices[[i]],
        rows=fitted.rows[[i]],
        units=here,
        models=_model(fitted.models, i),
        pooled=None,
        pooled_units=None,
    )


def _model(models: Models, i: int) -> Models:
    refuse_rows(models)
    if isinstance(models, BoostedModels):
        trees = tuple(
            (share, replace(each, place=each.place[[i]]))
            for share, each in models.trees
        )
        return replace(
            models, vectors=models.vectors[[i]], trees=trees, alone=models.alone[[i]]
        )
    return models[[i]] if isinstance(models, np.ndarray) else [models[i]]
