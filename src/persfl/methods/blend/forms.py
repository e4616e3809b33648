"""What a field of a question may hold, and how it travels.

A form reads a value that somebody else sent, and refuses what it should not be. In a shape, words
stand for sizes of the run: "names" are the askers on whose behalf one message asks, "copies" a
target's rows with and without each fold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from persfl.learners.storage.named_arrays import LARGE
from persfl.methods.blend.views import ViewSettings
from persfl.proposers import Refit
from persfl.types import Array, IntArray, Learner
from persfl.wire.codec import WireError, finite, within

MOST = 10_000  # of anything in one question
Shape = tuple[str | int, ...]
At = IntArray | slice


class ModelFamily(Protocol):
    """What questions and replies are read by: `persfl.methods.blend.offers.Offers` is one."""

    @property
    def learner(self) -> Learner: ...
    @property
    def features(self) -> int: ...
    @property
    def classes(self) -> int: ...
    @property
    def views(self) -> tuple[str, ...]: ...
    @property
    def proposer(self) -> Refit | None:
        """What carries a model to public points, where there are any."""

    @property
    def questions(self) -> tuple[type, ...]:
        """The types of questions that models of this kind are asked."""

    def start_forms(self) -> Mapping[str, Form]:
        """What offers are made from."""


@dataclass
class Wire:
    """A message, or a part of one: plain values, arrays, and the sizes that words stand for."""

    family: ModelFamily
    head: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def shape(self, words: Shape) -> tuple[int, ...]:
        """In numbers."""
        return tuple(w if isinstance(w, int) else self.sizes[w] for w in words)

    def inside(self, name: str) -> Wire:
        """What stands under this name."""
        return Wire(self.family, self.head, within(name, self.arrays), self.sizes)

    def parts(self, name: str) -> dict[str, dict[str, Any]]:
        """What stands under this name, by the next word of the names; all of it at once, since
        there may be thousands.
        """
        return grouped(within(name, self.arrays))


class Form:
    """One kind of value; unless said otherwise a plain one that belongs to the whole question."""

    def read(self, name: str, wire: Wire) -> Any:
        """The value that came, or a WireError."""
        raise NotImplementedError

    def write(self, name: str, value: Any, wire: Wire) -> None:
        """Put the value among the plain values, or the arrays."""
        wire.head[name] = value

    def along(self, word: str) -> bool:
        """Whether the first axis is that of this word."""
        return False

    def part(self, value: Any, word: str, at: At) -> Any:
        """These entries along the axis of this word; the value itself where it has none."""
        return value[at] if value is not None and self.along(word) else value


@dataclass(frozen=True)
class Flag(Form):
    """True, or not said."""

    def read(self, name: str, wire: Wire) -> bool:
        return wire.head.get(name) is True


@dataclass(frozen=True)
class Real(Form):
    """A number between two others."""

    above: float
    below: float
    optional: bool = False

    def read(self, name: str, wire: Wire) -> Any:
        value = wire.head.get(name)
        if value is None and self.optional:
            return None
        if not isinstance(value, float) or not self.above < value < self.below:
            raise WireError(f"{name} must be a number of a sensible size.")
        return value


@dataclass(frozen=True)
class Whole(Form):
    """A whole number; the size that its name stands for from there on."""

    least: int
    most: int
    optional: bool = False

    def read(self, name: str, wire: Wire) -> Any:
        value = wire.head.get(name)
        if value is None and self.optional:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise WireError(f"{name} must be a whole number.")
        if not self.least <= value <= self.most:
            raise WireError(f"{name} must be a whole number of a sensible size.")
        wire.sizes[name] = value
        return value


@dataclass(frozen=True)
class Look(Form):
    """A view of the rows."""

    def read(self, name: str, wire: Wire) -> ViewSettings:
        view = wire.head.get("view")
        if view not in wire.family.views:
            raise WireError("a question must say in which view it is asked.")
        variance = finite(wire.arrays.get("variance"), (wire.family.features,))
        if not (variance >= 0).all():
            raise WireError("variances must be at least 0.")
        return ViewSettings(str(view), variance)

    def write(self, name: str, value: Any, wire: Wire) -> None:
        wire.head["view"] = value.name
        wire.arrays["variance"] = value.variance


@dataclass(frozen=True)
class Numbers(Form):
    """Finite numbers of a shape."""

    shape: Shape
    above: float | None = None
    optional: bool = False

    def read(self, name: str, wire: Wire) -> Any:
        if name not in wire.arrays and self.optional:
            return None
        found = finite(wire.arrays.get(name), wire.shape(self.shape))
        if self.above is not None and not (found > self.above).all():
            raise WireError(f"{name} must be above {self.above:g}.")
        return found

    def write(self, name: str, value: Any, wire: Wire) -> None:
        wire.arrays[name] = readable(value)

    def along(self, word: str) -> bool:
        return word in self.shape[:1]


def readable(value: Any) -> Array:
    """Numbers as a device will read them: those that are too large to travel are as large as may
    be. One peer's lies make such numbers, and a question that cannot be read costs whoever is
    asked its answer, or its model.

    >>> readable([2.0, -1e29, np.inf]).tolist()
    [2.0, -1000000000000000.0, 1000000000000000.0]
    """
    return np.clip(np.asarray(value, dtype=np.float64), -LARGE, LARGE)


def grouped(arrays: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Arrays by the first word of their names."""
    found: dict[str, dict[str, Any]] = {}
    for name, array in arrays.items():
        first, _, rest = name.partition(".")
        found.setdefault(first, {})[rest] = array
    return found
