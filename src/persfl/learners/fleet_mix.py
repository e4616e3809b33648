"""Models of a whole fleet, each kept once: whose rows are answered by which, and with what share.

A device's model is a sum of parts: a vector of its own (a linear model), and models of the learner
that it shares with all devices, with a group of them, or with nobody. A shared model may be told
more than a row: what linear models of the row's device say of it. Only those linear models are
personal then.

    response = x'vector + sum over banks of  share * model(x, told'x)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

import numpy as np

from persfl.types import Array, IntArray, Learner, Model


@dataclass(frozen=True, eq=False)
class ModelBank:
    """Models, and which of them answers for a device: `which` (n,), -1 for none.

    `told` (n, columns, features + 1): linear models per device, the constant last. What they say of
    a row stands behind the row's own columns.
    """

    models: tuple[Model, ...]
    which: IntArray
    told: Array

    def wide(self, X: Array, owner: IntArray) -> Array:
        """Rows with what they are told.

        >>> bank = ModelBank((), np.zeros(2), np.array([[[2.0, 1.0]], [[0.0, 5.0]]]))
        >>> bank.wide(np.array([[3.0], [3.0]]), np.array([0, 1])).tolist()
        [[3.0, 7.0], [3.0, 5.0]]
        """
        if not self.told.shape[1]:
            return X
        return np.column_stack([X, said_by(self.told[owner], X)])


def said_by(models: Array, X: Array) -> Array:
    """(rows, models) what linear models (rows, models, features + 1) say of a row each."""
    said = np.einsum("rkf,rf->rk", models[:, :, :-1], X)
    return np.asarray(said + models[:, :, -1])


class Part(NamedTuple):
    """A model of a device's mix, and the linear models (columns, features + 1) that tell it."""

    share: float
    model: Model
    told: Array


@dataclass(frozen=True, eq=False)
class DeviceMix:
    """One device's model: a linear one, the constant last (None for classes), and parts."""

    linear: Array | None
    parts: tuple[Part, ...]

    def check(self, learner: Learner, features: int) -> None:
        """Stop where a part is not a model of this learner, for so many columns."""
        for part in self.parts:
            learner.check(part.model, features + len(part.told))


@dataclass(frozen=True, eq=False)
class FleetMix(Sequence[DeviceMix]):
    """`vectors` (n, features + 1), the constant last, or None where labels are classes; `banks`
    are (share, bank). A device that `alone` has a model for goes by that one and nothing else.
    """

    vectors: Array | None
    banks: tuple[tuple[float, ModelBank], ...]
    alone: ModelBank

    def __len__(self) -> int:
        return len(self.alone.which)

    @overload
    def __getitem__(self, i: int) -> DeviceMix: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[DeviceMix]: ...
    def __getitem__(self, i: int | slice) -> DeviceMix | Sequence[DeviceMix]:
        if isinstance(i, slice):
            return [self[k] for k in range(len(self))[i]]
        i = range(len(self))[i]
        by_itself = int(self.alone.which[i])
        if by_itself >= 0:
            part = Part(1.0, self.alone.models[by_itself], self.alone.told[i])
            return DeviceMix(None, (part,))
        parts = tuple(
            Part(share, bank.models[int(bank.which[i])], bank.told[i])
            for share, bank in self.banks
        )
        return DeviceMix(None if self.vectors is None else self.vectors[i], parts)

    def __iter__(self) -> Iterator[DeviceMix]:
        return (self[i] for i in range(len(self)))

    @property
    def every(self) -> list[Model]:
        """All models of all banks."""
        banks = [bank for _, bank in self.banks] + [self.alone]
        return [model for bank in banks for model in bank.models]


def nobody(n: int, features: int) -> ModelBank:
    """The bank that answers for no device."""
    return ModelBank((), np.full(n, -1), np.zeros((n, 0, features + 1)))
