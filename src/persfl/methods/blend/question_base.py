"""What every question of blend can do, and how numbers are read that a device replied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, get_type_hints

import numpy as np

from persfl.learners.storage.named_arrays import LARGE
from persfl.methods.blend.forms import At, Form, ModelFamily, Shape, Wire
from persfl.types import Array


@dataclass(frozen=True, eq=False, kw_only=True)
class Question:
    """`cost` is in refits; `replies` are the numbers that come back, by name and shape."""

    kind: ClassVar[str] = ""
    cost: ClassVar[float] = 0.0
    target: ClassVar[bool] = False
    replies: ClassVar[Mapping[str, Shape]] = {}

    @classmethod
    def forms(cls) -> dict[str, Form]:
        """What each field may hold."""
        if cls.kind not in _FORMS:
            hints = get_type_hints(cls, include_extras=True)
            found = {one.name: hints[one.name].__metadata__[0] for one in fields(cls)}
            _FORMS[cls.kind] = found
        return _FORMS[cls.kind]

    def wire(self, family: ModelFamily) -> Wire:
        """As plain values and arrays."""
        found = Wire(family, {"what": self.kind})
        for name, form in self.forms().items():
            value = getattr(self, name)
            if value is not None and value is not False:
                form.write(name, value, found)
        return found

    def has(self, word: str) -> bool:
        """Whether there is an entry for each of "names", or of "copies"."""
        return any(form.along(word) for form in self.forms().values())

    def part(self, word: str, at: At) -> Self:
        """The same question with these entries along "names" or "copies" alone."""
        parts = {
            name: form.part(getattr(self, name), word, at)
            for name, form in self.forms().items()
        }
        return replace(self, **parts)


_FORMS: dict[str, dict[str, Form]] = {}  # read off the types once


def reply_numbers(array: Any, shape: tuple[int, ...], most: float = LARGE) -> Array:
    """What a device told, if it is numbers of this shape; NaN where it is nothing, or absurd."""
    if array is None or array.dtype != np.float64 or array.shape != shape:
        return np.full(shape, np.nan)
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(array) <= most, array, np.nan)
