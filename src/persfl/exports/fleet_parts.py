"""A fitted fleet as tables with a row per device: what an export needs, whatever the models are.

Every device's model is a weighted sum of parts, each a link of scores. Devices need not have the
same parts: a device that lacks one has share 0 there. Behind the devices there is one more row, for
devices that were not there when fitting.

    response = sum over parts of  share[device] * link( base[device] + slopes[device] x + trees )
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from persfl.errors import InputError
from persfl.learners.fleet_mix import DeviceMix
from persfl.learners.linear import Linear
from persfl.learners.near_rows import refuse_rows
from persfl.learners.plain import Plain
from persfl.learners.plain_families import as_plain
from persfl.learners.shared_trees import BoostedModels
from persfl.learners.tree import Grown

if TYPE_CHECKING:
    from persfl.fitting.fitted import Fitted
    from persfl.types import Array, IntArray, Model

NEVER = -1e30  # the score of a class that a model has never seen
_LINKS = {"logistic": "sigmoid", "multinomial": "softmax", "poisson": "exp"}


class Forest(NamedTuple):
    """Trees that are added up: `leaves` are of K scores, or of the one of their turn."""

    trees: Sequence[Grown]
    rate: float
    columns: IntArray
    """(K,) which score of the whole each of theirs is."""


class ModelPiece(NamedTuple):
    """One part of one device's model; `told` (columns, features + 1) are linear models whose
    answers stand behind a row's own columns.
    """

    share: float
    link: str
    fine: bool
    base: Array  # (K,)
    slopes: Array | None  # (K, columns)
    forest: Forest | None
    told: Array


@dataclass(frozen=True, eq=False)
class FleetPart:
    """One part of all devices' models; tables have a row per device, the newcomer's last."""

    link: str
    fine: bool
    """Whether trees compare rows as they are; otherwise rounded to single precision."""
    share: Array  # (n + 1,)
    base: Array  # (n + 1, K)
    slopes: Array | None  # (n + 1, K, columns)
    told: Array  # (n + 1, more columns, features + 1)
    which: IntArray  # (n + 1,) the forest of a device
    forests: Sequence[Forest]

    @property
    def scores(self) -> int:
        """How many scores there are."""
        return int(self.base.shape[1])


@dataclass(frozen=True, eq=False)
class FleetTables:
    """How rows enter and leave: (n + 1, ...) tables of centres and scales."""

    centre: Array
    scale: Array
    label_centre: Array
    label_scale: Array
    known: bool
    """Whether there is a model for newcomers."""


def tables_of(fitted: Fitted) -> FleetTables:
    """The units of every device, and of newcomers."""
    units = fitted.units
    n = len(fitted.devices)
    own = units.kind == "centred"
    rows = np.arange(n)
    zeros = np.zeros(n)
    # what `outside` does to 0 and to 1 is all there is to it
    level = units.outside(zeros, rows)
    steep = units.outside(zeros + 1.0, rows) - level
    centre = units.centres if own else np.tile(units.mean, (n, 1))
    new = units if fitted.population is not None else fitted.pooled_units
    new = new or units
    return FleetTables(
        np.vstack([centre, new.mean]),
        np.vstack([np.tile(units.scale, (n, 1)), new.scale]),
        np.append(level, new.label_mean),
        np.append(steep, new.label_scale),
        fitted.pooled is not None,
    )


def fleet_parts_of(fitted: Fitted) -> list[FleetPart]:
    """All parts of all models; those of trees that a whole fleet shares are not among them."""
    models = fitted.models
    refuse_rows(models)
    if isinstance(models, BoostedModels):
        models = list(models.vectors)
    each = [*models, fitted.newcomer_model()]
    blank = len(each) - 1 if each[-1] is None else -1
    pieces = [
        [] if i == blank else _pieces(fitted, model) for i, model in enumerate(each)
    ]
    slots: dict[tuple[str, int, bool, int, int], list[ModelPiece | None]] = {}
    for i, device in enumerate(pieces):
        seen: dict[tuple[str, int, bool, int], int] = {}
        for piece in device:
            kind = _kind(piece)
            turn = seen.get(kind, 0)
            seen[kind] = turn + 1
            slots.setdefault((*kind, turn), [None] * len(each))[i] = piece
    return [_part(slot) for slot in slots.values()]


def _kind(piece: ModelPiece) -> tuple[str, int, bool, int]:
    """Pieces of a kind can share a table."""
    return piece.link, len(piece.base), piece.fine, len(piece.told)


def _part(slot: Sequence[ModelPiece | None]) -> FleetPart:
    """Pieces of one kind, a row each."""
    some = next(piece for piece in slot if piece is not None)
    scores = len(some.base)
    wide = _width(slot)
    count = len(slot)
    base = np.zeros((count, scores))
    slopes = np.zeros((count, scores, wide)) if wide else None
    told = np.zeros((count, *some.told.shape))
    share = np.zeros(count)
    which = np.zeros(count, dtype=np.int64)
    forests: list[Forest] = []
    place: dict[int, int] = {}
    for i, piece in enumerate(slot):
        if piece is None:
            continue
        share[i] = piece.share
        base[i] = piece.base
        told[i] = piece.told
        if slopes is not None and piece.slopes is not None:
            slopes[i] = piece.slopes
        if piece.forest is not None:
            key = id(piece.forest.trees)
            if key not in place:
                place[key] = len(forests)
                forests.append(piece.forest)
            which[i] = place[key]
    return FleetPart(some.link, some.fine, share, base, slopes, told, which, forests)


def _width(slot: Sequence[ModelPiece | None]) -> int:
    """How many columns slopes have; 0 without any."""
    found = [p.slopes for p in slot if p is not None and p.slopes is not None]
    return found[0].shape[1] if found else 0


def _pieces(fitted: Fitted, model: Model) -> list[ModelPiece]:
    """One device's model as parts."""
    if isinstance(model, list):  # shares and models
        inside = [(share, _pieces(fitted, part)) for share, part in model]
        return [
            piece._replace(share=share * piece.share)
            for share, parts in inside
            for piece in parts
        ]
    if isinstance(model, DeviceMix):
        found = [
            _piece(fitted, part.model)._replace(share=part.share, told=part.told)
            for part in model.parts
        ]
        if model.linear is not None:
            line = Plain("value", model.linear[-1:], slopes=model.linear[None, :-1])
            found.append(_whole(line, fitted))
        return found
    return [_piece(fitted, model)]


def _piece(fitted: Fitted, model: Model) -> ModelPiece:
    """One model of the learner."""
    learner = fitted.learner
    if isinstance(learner, Linear) and isinstance(model, np.ndarray):
        rows = model.reshape(learner.classes, -1)
        d = rows.shape[1] - learner.intercept
        base = rows[:, d] if learner.intercept else np.zeros(len(rows))
        labels = np.arange(float(fitted.classes)) if fitted.classes else None
        link = _LINKS.get(learner.kind, "value")
        return _whole(Plain(link, base, labels, rows[:, :d]), fitted)
    if isinstance(model, Grown):
        alone = Plain("value", np.zeros(1), trees=(model,), fine=True)
        return _whole(alone, fitted)
    try:
        plain = as_plain(model)
    except InputError:
        raise _unknown(type(model).__name__) from None
    if plain.link == "margin" or (plain.mean is not None and plain.slopes is None):
        raise _unknown("a classifier without chances, or a scaler before trees")
    if plain.mean is not None and plain.scale is not None:
        slopes = np.asarray(plain.slopes) / plain.scale
        base = plain.base - slopes @ plain.mean
        plain = Plain(plain.link, base, plain.labels, slopes)
    return _whole(plain, fitted)


def _whole(plain: Plain, fitted: Fitted) -> ModelPiece:
    """With a score for every class of the fit, and trees by the scores that they add to."""
    classes = fitted.classes
    link = plain.link
    base = plain.base
    slopes = plain.slopes
    columns = np.arange(len(base))
    if classes and plain.labels is not None:
        known = plain.labels.astype(np.int64)
        # of two classes the second has a score, and the first stays at 0
        columns = known[1:] if link == "sigmoid" else known
        absent = 0.0 if link == "chances" else NEVER
        base = np.full(classes, absent)
        base[known] = 0.0
        base[columns] += plain.base
        if slopes is not None:
            wide = np.zeros((classes, slopes.shape[1]))
            wide[columns] = slopes
            slopes = wide
        link = "softmax" if link == "sigmoid" else link
    forest = None
    if plain.trees:
        mean = plain.trees[0].value.ndim == 2
        rate = 1.0 / len(plain.trees) if mean else plain.rate
        base = np.zeros_like(base) if mean else base
        forest = Forest(plain.trees, rate, columns)
    none = np.zeros((0, len(fitted.schema.columns) + 1))
    return ModelPiece(1.0, link, plain.fine, base, slopes, forest, none)


def _unknown(what: str) -> InputError:
    return InputError(
        f"models of this kind have no export as a graph: {what}. Linear models, trees, forests,"
        " boosting and MLPs have one."
    )
