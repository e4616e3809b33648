"""What a blend of small models of classes asks (see `persfl.methods.mixed.class_home`).

`numbers` are those of a model's columns and classes; copies are a device's rows, whole and without
each part that is hidden.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from persfl.methods.blend.forms import Flag, Numbers, Real, Whole
from persfl.methods.blend.question_base import Question
from persfl.methods.mixed.class_near import CENTRES
from persfl.types import Array

_SIZE = Real(above=0.0, below=1e6)


@dataclass(frozen=True, eq=False, kw_only=True)
class ClassBends(Question):
    """How the log chance of its labels bends at models of the first copies: slope, and of the
    curve the upper triangle. And how many rows of each class it has, and squares of columns.
    """

    kind = "bends"
    ordered: Annotated[bool, Flag()] = False
    many: Annotated[int, Whole(1, 64)]
    models: Annotated[Array, Numbers(("many", "numbers"))]


@dataclass(frozen=True, eq=False, kw_only=True)
class ClassFree(Question):
    """Its models, hardly pulled to the fleet's."""

    kind = "free"
    ordered: Annotated[bool, Flag()] = False
    slopes: Annotated[float, _SIZE]
    fleet: Annotated[Array, Numbers(("copies", "numbers"))]


@dataclass(frozen=True, eq=False, kw_only=True)
class ClassNear(Question):
    """Which of these centres are likeliest for it, and its models, pulled to their mean."""

    kind = "near"
    ordered: Annotated[bool, Flag()] = False
    slopes: Annotated[float, _SIZE]
    many: Annotated[int, Whole(1, CENTRES)]
    centres: Annotated[Array, Numbers(("copies", "many", "numbers"))]


@dataclass(frozen=True, eq=False, kw_only=True)
class ClassPool(Question):
    """What its hidden rows say of a pool of offers by these shares; rows of a class that a device
    has no other row of count for `design`.
    """

    kind = "pool"
    ordered: Annotated[bool, Flag()] = False
    slopes: Annotated[float, _SIZE]
    fleet: Annotated[Array, Numbers(("copies", "numbers"))]
    near: Annotated[bool, Flag()] = False
    mean: Annotated[Array | None, Numbers(("copies", "numbers"), optional=True)] = None
    design: Annotated[float, Real(above=0.0, below=1.1)]
    shares: Annotated[Array, Numbers(("offers",), above=0.0)]


@dataclass(frozen=True, eq=False, kw_only=True)
class ClassMix(Question):
    """Its model of classes: its offers, mixed by these shares. And how likely each of these centres
    is for it, and what they and the fleet's model lose on its rows.
    """

    kind = "pooled mix"
    target = True
    ordered: Annotated[bool, Flag()] = False
    slopes: Annotated[float, _SIZE]
    fleet: Annotated[Array, Numbers(("copies", "numbers"))]
    near: Annotated[bool, Flag()] = False
    mean: Annotated[Array | None, Numbers(("copies", "numbers"), optional=True)] = None
    shares: Annotated[Array, Numbers(("offers",), above=0.0)]
    many: Annotated[int, Whole(0, CENTRES)] = 0
    centres: Annotated[Array, Numbers(("many", "numbers"))]


CLASS_QUESTIONS: tuple[type[Question], ...] = (
    ClassBends,
    ClassFree,
    ClassNear,
    ClassPool,
    ClassMix,
)
