"""Responses of many devices' models at once: values of a regression, or a chance for every
class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import softmax

from persfl.batches import batches
from persfl.learners.fleet_mix import DeviceMix, FleetMix, ModelBank, said_by
from persfl.learners.near_rows import NearRows
from persfl.learners.shared_trees import BoostedModels
from persfl.learners.tree import Grown
from persfl.traits import has_chances, tells_chances, traits_of

if TYPE_CHECKING:
    from persfl.types import Array, IntArray, Learner, Mask, Model, Models


def respond(learner: Learner, model: Model, X: Array, classes: int = 0) -> Array:
    """(rows,) values, or with `classes` (rows, classes) chances, of one model.

    >>> from persfl import Linear
    >>> respond(
    ...     Linear("logistic"), np.array([0.0]), np.ones((1, 1)), classes=2
    ... ).tolist()
    [[0.5, 0.5]]
    """
    if isinstance(model, list):  # a mix: of shares and models
        return np.asarray(
            sum(share * respond(learner, part, X, classes) for share, part in model)
        )
    if isinstance(model, DeviceMix):
        return _mixed(learner, model, X, classes)
    if not classes:
        return np.asarray(learner.predict(model, X), dtype=np.float64)
    if not has_chances(learner) or not tells_chances(model):
        labels = learner.labels(model, X).astype(np.int64)
        return np.asarray(labels[:, None] == np.arange(classes), dtype=np.float64)
    chances, known = learner.chances(model, X)
    if chances.shape[-1] == classes:
        return np.asarray(chances)
    full = np.zeros((*chances.shape[:-1], classes))
    full[..., known.astype(np.int64)] = chances
    return full


def respond_each(
    learner: Learner, models: Models, X: Array, owner: IntArray, classes: int = 0
) -> Array:
    """As `respond`, each row by the model of its owner (a position in `models`).

    >>> from persfl import Linear
    >>> respond_each(
    ...     Linear(), np.array([[1.0], [2.0]]), np.ones((3, 1)), np.array([0, 1, 0])
    ... ).tolist()
    [1.0, 2.0, 1.0]
    """
    if isinstance(models, BoostedModels):
        linear = respond_each(learner, models.vectors, X, owner, classes)
        return with_trees(learner, models, linear, X, owner, classes)
    if isinstance(models, FleetMix):
        return _by_banks(learner, models, X, owner, classes)
    if isinstance(models, NearRows):
        said = respond_each(learner, models.vectors, X, owner, classes)
        return models.mixed(learner, said, X, owner, classes)
    out = np.empty((len(X), classes) if classes else len(X))
    if isinstance(models, np.ndarray):
        for part in batches(len(X), 8 * models.shape[1]):
            found = respond(learner, models[owner[part]], X[part, None, :], classes)
            out[part] = found[:, 0]
        return out
    order = np.argsort(owner, kind="stable")
    edges = np.flatnonzero(np.diff(owner[order], prepend=-1, append=-1))
    for lo, hi in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        rows = order[lo:hi]
        out[rows] = respond(learner, models[int(owner[rows[0]])], X[rows], classes)
    return out


def with_trees(
    learner: Learner,
    models: BoostedModels,
    linear: Array,
    X: Array,
    owner: IntArray,
    classes: int,
) -> Array:
    """Responses of vectors, with what trees of the fleet add: to values, or to the logarithms of
    rates or chances.
    """
    if not classes:
        added = models.added(X, owner)
        if traits_of(learner).task == "counts":
            return np.asarray(linear * np.exp(added))
        return np.asarray(linear + added)
    with np.errstate(divide="ignore"):
        known = np.log(linear)
    return np.asarray(softmax(known + models.log_added(X, owner, classes), axis=1))


def _mixed(learner: Learner, mix: DeviceMix, X: Array, classes: int) -> Array:
    """As `respond`, of one device of a `FleetMix`."""
    found = np.zeros((len(X), classes) if classes else len(X))
    if mix.linear is not None:
        found += X @ mix.linear[:-1] + mix.linear[-1]
    for share, model, told in mix.parts:
        more = np.column_stack([X, X @ told[:, :-1].T + told[:, -1]])
        found += share * respond(learner, model, more, classes)
    return found


def _by_banks(
    learner: Learner, models: FleetMix, X: Array, owner: IntArray, classes: int
) -> Array:
    """As `respond_each`: a model that many devices share answers for all their rows at once."""
    found = np.zeros((len(X), classes) if classes else len(X))
    if models.vectors is not None:
        found += said_by(models.vectors[owner, None], X)[:, 0]
    for share, bank in models.banks:
        found += share * respond_bank(learner, bank, X, owner, classes)
    away = models.alone.which[owner] >= 0
    if away.any():
        found[away] = respond_bank(learner, models.alone, X[away], owner[away], classes)
    return found


def respond_bank(
    learner: Learner, bank: ModelBank, X: Array, owner: IntArray, classes: int = 0
) -> Array:
    """As `respond_each`, of one bank; 0 for devices that it has no model for."""
    out = np.zeros((len(X), classes) if classes else len(X))
    which = bank.which[owner]
    wide = bank.wide(X, owner)
    order = np.argsort(which, kind="stable")
    known, first = np.unique(which[order], return_index=True)
    for k, rows in zip(known.tolist(), np.split(order, first)[1:], strict=True):
        if k >= 0:
            out[rows] = respond(learner, bank.models[k], wide[rows], classes)
    return out


def unknown(models: Models) -> Mask:
    """(devices,) whose model is not here: those of a federation may have stayed at home.

    >>> (
    ...     unknown(np.array([[1.0, np.nan], [np.nan, np.nan]])).tolist(),
    ...     unknown([None]).tolist(),
    ... )
    ([False, True], [True])
    """
    if isinstance(models, BoostedModels | NearRows):
        return unknown(models.vectors)
    if isinstance(models, FleetMix):
        return np.zeros(len(models), dtype=bool)
    if isinstance(models, np.ndarray):
        return np.asarray(np.isnan(models).all(axis=1))
    return np.array([model is None or _is_blank(model) for model in models])


def _is_blank(model: Model) -> bool:
    """Whether a tree has no leaf that says anything."""
    return isinstance(model, Grown) and bool(np.isnan(model.value).all())
