"""What a blend of counts or robust losses asks (see `persfl.methods.mixed.loss_home`).

Copies are a device's rows, whole (0) and without each part that is hidden. Models have the level
first, where they have one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from persfl.methods.blend.forms import Flag, Numbers, Real, Shape, Whole
from persfl.methods.blend.question_base import Question
from persfl.methods.mixed.near_round import NAMED
from persfl.types import Array

PLACES = 64  # where sums are asked, at most, in one question


@dataclass(frozen=True, eq=False, kw_only=True)
class LossPlaces(Question):
    """Sums over working rows of these copies, on the way from models to others as far as is safe;
    how much of it that is, and what rows weigh, and those near their scores. Of squares, which are
    symmetric, the upper triangle.
    """

    kind = "places"
    replies: ClassVar[Mapping[str, Shape]] = {
        "square": ("many", "triangle"),
        "product": ("many", "size"),
        "label": ("many",),
        "weight": ("many",),
        "near": ("many",),
        "part": ("many",),
    }
    ordered: Annotated[bool, Flag()] = False
    many: Annotated[int, Whole(1, PLACES)]
    copies: Annotated[Array, Numbers(("many",))]
    starts: Annotated[Array, Numbers(("many", "size"))]
    ends: Annotated[Array, Numbers(("many", "size"))]
    reach: Annotated[Array, Numbers(("many",))]


@dataclass(frozen=True, eq=False, kw_only=True)
class LossShares(Question):
    """Sums over its hidden rows at a mix of offers by these shares: of scores of the mix less those
    of each offer, and of what labels are away from the mix.
    """

    kind = "shares"
    replies: ClassVar[Mapping[str, Shape]] = {
        "square": (1, "triangle"),
        "product": (1, "offers"),
        "label": (1,),
        "weight": (1,),
        "near": (1,),
    }
    ordered: Annotated[bool, Flag()] = False
    models: Annotated[Array, Numbers(("folds", "offers", "size"))]
    shares: Annotated[Array, Numbers(("offers",))]
    reach: Annotated[float, Real(-1e15, 1e15)]


@dataclass(frozen=True, eq=False, kw_only=True)
class LossTake(Question):
    """Its model, and what that is without each part that is hidden; it may leave it for that of its
    own rows alone. It tells the one that it ends with, and what it loses on its rows by others that
    it is shown.
    """

    kind = "take and look"
    target = True
    replies: ClassVar[Mapping[str, Shape]] = {
        "losses": ("many",),
        "model": ("size",),
        "own": (1,),
    }
    ordered: Annotated[bool, Flag()] = False
    model: Annotated[Array, Numbers(("size",))]
    hidden: Annotated[Array, Numbers(("folds", "size"))]
    many: Annotated[int, Whole(0, NAMED + 1)]
    shown: Annotated[Array, Numbers(("many", "size"))]


LOSS_QUESTIONS: tuple[type[Question], ...] = (LossPlaces, LossShares, LossTake)
