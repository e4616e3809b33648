"""Everything that blend asks of a device, as types; one list for one process and for a federation.

A field declares what it may hold (see `persfl.methods.blend.forms`): a number within bounds,
numbers of a shape, models of the learner. Questions are written to messages and read from them by
these declarations, so no question has a parser of its own, and nothing reaches a device's rows
that was not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from persfl.methods.blend.class_questions import CLASS_QUESTIONS
from persfl.methods.blend.forms import (
    MOST,
    Flag,
    Look,
    ModelFamily,
    Numbers,
    Real,
    Shape,
    Whole,
    Wire,
)
from persfl.methods.blend.loss_questions import LOSS_QUESTIONS
from persfl.methods.blend.model_forms import Models, Probes, Starts, Views
from persfl.methods.blend.question_base import Question
from persfl.methods.blend.views import ViewSettings
from persfl.types import Array
from persfl.wire.codec import WireError

_LENGTH = Real(above=0.0, below=1e6)
_STEPS = Whole(least=1, most=10_000)


def checked(
    told: Any, arrays: Mapping[str, Any], family: ModelFamily, **sizes: int
) -> Any:
    """The question that somebody else sent; a WireError where it is none."""
    kind = KINDS.get(str(told.get("what"))) if isinstance(told, dict) else None
    if kind is None or kind not in family.questions:
        raise WireError("a question must be one that persfl knows.")
    wire = Wire(family, dict(told), dict(arrays), dict(sizes))
    return kind(**{name: form.read(name, wire) for name, form in kind.forms().items()})


# As a peer


@dataclass(frozen=True, eq=False, kw_only=True)
class Spread(Question):
    """Sums of squares about its own means."""

    kind = "spread"
    replies: ClassVar[Mapping[str, Shape]] = {
        "weight": (1,),
        "squares": ("features",),
    }


@dataclass(frozen=True, eq=False, kw_only=True)
class Weight(Question):
    """What its rows weigh together."""

    kind = "weight"
    replies: ClassVar[Mapping[str, Shape]] = {"weight": (1,)}


@dataclass(frozen=True, eq=False, kw_only=True)
class PartSums(Question):
    """Sums over each part of its rows, with a column of ones in front where models have a level:
    all that squared loss needs to know of them (see `persfl.methods.mixed.device_sums`). Of
    squares, which are symmetric, the upper triangle. Of ordered rows also the plain sums over the
    latest of each part, columns and label: where a device stands
    (`persfl.methods.mixed.latest_rows`).
    """

    kind = "parts"
    replies: ClassVar[Mapping[str, Shape]] = {
        "square": ("parts", "triangle"),
        "product": ("parts", "size"),
        "label": ("parts",),
        "weight": ("parts",),
        "latest": ("parts", "wider"),
    }
    ordered: Annotated[bool, Flag()] = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Draw(Question):
    """Models refitted to its rows and to points under a root of a pull, once with the labels of a
    centre and once with those of a centre aside of it for every column; what the first of them
    leaves of its labels, and what its rows weigh (see `persfl.methods.mixed.drawn_fits`).
    """

    kind = "draw"
    cost = 1.0
    replies: ClassVar[Mapping[str, Shape]] = {
        "models": ("wider", "size"),
        "left": (1,),
        "weight": (1,),
    }
    root: Annotated[Array, Numbers(("size", "size"))]
    centres: Annotated[Array, Numbers(("wider", "size"))]


@dataclass(frozen=True, eq=False, kw_only=True)
class LeafSums(Question):
    """Sums of labels and numbers of rows, or numbers of rows of each class, in the leaves of random
    trees that everybody draws alike, with noise: what a protected device tells of trees.
    """

    kind = "leaves"
    replies: ClassVar[Mapping[str, Shape]] = {"leaves": ("size",)}


@dataclass(frozen=True, eq=False, kw_only=True)
class GradientSteps(Question):
    """From each model a few gradient steps."""

    kind = "steps"
    cost = 0.25
    replies: ClassVar[Mapping[str, Shape]] = {"answers": ("names", "size")}
    look: Annotated[ViewSettings, Look()]
    models: Annotated[Array, Models(("names",))]
    step: Annotated[float, _LENGTH]
    steps: Annotated[int, _STEPS]


@dataclass(frozen=True, eq=False, kw_only=True)
class Slopes(Question):
    """At each model the gradient; a step of length 1 would tell as much."""

    kind = "slopes"
    cost = 0.25
    replies: ClassVar[Mapping[str, Shape]] = {"answers": ("names", "size")}
    look: Annotated[ViewSettings, Look()]
    models: Annotated[Array, Models(("names",))]


@dataclass(frozen=True, eq=False, kw_only=True)
class Falls(Question):
    """1 where so many steps of this length from the model lower its own loss, else 0."""

    kind = "falls"
    cost = 0.25
    replies: ClassVar[Mapping[str, Shape]] = {"falls": (1,)}
    look: Annotated[ViewSettings, Look()]
    model: Annotated[Array, Numbers(("size",))]
    step: Annotated[float, _LENGTH]
    steps: Annotated[int, _STEPS]


@dataclass(frozen=True, eq=False, kw_only=True)
class Fit(Question):
    """The model of its own rows alone."""

    kind = "fit"
    cost = 1.0
    look: Annotated[ViewSettings, Look()]


@dataclass(frozen=True, eq=False, kw_only=True)
class Refits(Question):
    """Models refitted to its rows and the public points, one for each probe."""

    kind = "refit"
    cost = 1.0
    look: Annotated[ViewSettings, Look()]
    probes: Annotated[Any, Probes()]


# As a target: about its rows, whole and without each fold


@dataclass(frozen=True, eq=False, kw_only=True)
class OwnRows(Question):
    """What each copy's rows weigh; what it would answer itself."""

    kind = "own"
    target = True
    replies: ClassVar[Mapping[str, Shape]] = {
        "weight": ("copies",),
        "answers": ("shown", "copies", "size"),
    }
    look: Annotated[ViewSettings, Look()]
    ordered: Annotated[bool, Flag()] = False
    models: Annotated[Array | None, Models(shown=16, optional=True)] = None
    step: Annotated[float | None, Real(0.0, 1e6, optional=True)] = None
    steps: Annotated[int | None, Whole(1, 10_000, optional=True)] = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Weigh(Question):
    """Losses of models on each copy's rows; where a tree is missing, of the copy's own fit."""

    kind = "weigh"
    target = True
    replies: ClassVar[Mapping[str, Shape]] = {"losses": ("copies", "many")}
    look: Annotated[ViewSettings, Look()]
    ordered: Annotated[bool, Flag()] = False
    many: Annotated[int, Whole(0, MOST)]
    models: Annotated[Any, Models(("copies", "many"), loose=True)]


@dataclass(frozen=True, eq=False, kw_only=True)
class JudgeOffers(Question):
    """The evidence: how well offers made from these starts predict each fold."""

    kind = "offers"
    target = True
    replies: ClassVar[Mapping[str, Shape]] = {"losses": ("offers",), "weight": (1,)}
    look: Annotated[ViewSettings, Look()]
    ordered: Annotated[bool, Flag()] = False
    starts: Annotated[Mapping[str, Any], Starts()]


@dataclass(frozen=True, eq=False, kw_only=True)
class Mix(Question):
    """Its model: what it makes of the starts in each view, mixed by these shares."""

    kind = "mix"
    target = True
    ordered: Annotated[bool, Flag()] = False
    views: Annotated[tuple[tuple[ViewSettings, Mapping[str, Any]], ...], Views()]
    shares: Annotated[Array, Numbers(("offers",))]


@dataclass(frozen=True, eq=False, kw_only=True)
class Take(Question):
    """Its model, which others' sums and its own led to."""

    kind = "take"
    target = True
    model: Annotated[Array, Numbers(("size",))]


_ALL: tuple[type[Question], ...] = (
    Spread, Weight, PartSums, Draw, LeafSums, GradientSteps, Slopes, Falls, Fit, Refits, OwnRows,
    Weigh, JudgeOffers, Mix, Take, *CLASS_QUESTIONS, *LOSS_QUESTIONS,
)  # fmt: skip
KINDS: Mapping[str, type[Question]] = {kind.kind: kind for kind in _ALL}
