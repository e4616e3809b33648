"""Rows of a protected device as a run's questions need them, and what a question hangs on."""

from __future__ import annotations

from typing import Any

import numpy as np

from persfl.federation.messages import Refused
from persfl.federation.run_codec import RunCodec
from persfl.privacy.mechanisms import each_row
from persfl.traits import has_gradients, has_statistics, traits_of
from persfl.types import Array, Data, Differentiable
from persfl.wire import Terms


def stepping_learner(codec: RunCodec) -> Differentiable:
    """The learner, if rows have gradients of their own."""
    learner = codec.learner
    if not has_gradients(learner) or has_statistics(learner):
        raise Refused("privacy")
    return learner


def rows_with_columns(there: Any, wanted: Any, data: Data) -> Data:
    """Rows with these columns alone, in this order; those that weigh nothing are left out."""
    place = {str(name): i for i, name in enumerate(there)}
    used = data.weight > 0
    X = data.X[:, [place[name] for name in wanted]]
    return Data(np.ascontiguousarray(X[used]), data.y[used], data.weight[used])


def fitting_labels(codec: RunCodec, y: Array) -> Array:
    """Labels that the loss of a run can take: others are moved to the nearest one."""
    classes = codec.terms.classes
    if classes:
        return np.asarray(np.clip(np.rint(np.nan_to_num(y)), 0, classes - 1))
    counts = traits_of(codec.learner).task == "counts"
    return np.asarray(np.maximum(y, 0.0) if counts else y)


def row_losses(learner: Differentiable, model: Array, data: Data) -> Array:
    """(rows,) the loss of each row."""
    rows = each_row(data)
    with np.errstate(all="ignore"):
        found = learner.loss(np.repeat(model[None], len(rows.y), axis=0), rows)
    return np.asarray(found)[:-1] * data.weight


def kind_of_loss(terms: Terms) -> tuple[object, ...]:
    """What a gradient hangs on beside the model and the units; not on the length of a step."""
    return terms.model, terms.columns, terms.classes, sorted(terms.settings.items())


def units_arrays(terms: Terms) -> dict[str, Array]:
    """The units of a run, for digests."""
    label = np.array([terms.label_mean, terms.label_scale])
    found = {"label": label}
    if terms.mean is not None and terms.scale is not None:
        found |= {"mean": terms.mean, "scale": terms.scale}
    return found
