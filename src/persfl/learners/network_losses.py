"""What the outputs of a network mean: the loss of each row, the response, and which labels fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from persfl.checks import one_of
from persfl.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from persfl.types import Array

    EachLoss = Callable[[Tensor, Tensor], Tensor]  # of outputs and labels, for each row


@dataclass(frozen=True)
class NumberLoss:
    """One output is the response. `free` losses are the user's own, for any number of outputs."""

    name: str
    each: EachLoss
    free: bool = False

    def response(self, z: Array) -> Array:
        """The response to outputs (..., outputs)."""
        return np.asarray(z[..., 0], dtype=np.float64)

    label = response

    def chances(self, response: Array) -> tuple[Array, Array]:
        """The chance of every label, and the labels."""
        raise InputError(
            "chances of labels exist for loss='cross_entropy' and 'logistic'. Got"
            f" {self.name!r}."
        )

    def complaint(self, y: Array, outputs: int) -> str | None:
        """What these labels lack, or a module of so many outputs."""
        if self.free or outputs == 1:
            return None
        return f"loss={self.name!r} takes a module with one output a row. It gives {outputs}."


@dataclass(frozen=True)
class LogisticLoss(NumberLoss):
    """One output, of which the response is the chance of label 1."""

    def response(self, z: Array) -> Array:
        return np.asarray(1.0 / (1.0 + np.exp(-z[..., 0])), dtype=np.float64)

    def label(self, z: Array) -> Array:
        return np.asarray(z[..., 0] > 0, dtype=np.float64)

    def chances(self, response: Array) -> tuple[Array, Array]:
        return np.stack([1.0 - response, response], axis=-1), np.array([0.0, 1.0])

    def complaint(self, y: Array, outputs: int) -> str | None:
        good = (y == 0) | (y == 1)
        wants = _unless(good, y, f"loss={self.name!r} takes labels 0 and 1")
        return super().complaint(y, outputs) or wants


@dataclass(frozen=True)
class ClassLoss(NumberLoss):
    """An output for every class, of which the response is its chance."""

    def response(self, z: Array) -> Array:
        return np.asarray(torch.softmax(torch.as_tensor(z), dim=-1), dtype=np.float64)

    def label(self, z: Array) -> Array:
        return np.asarray(z.argmax(axis=-1), dtype=np.float64)

    def chances(self, response: Array) -> tuple[Array, Array]:
        return response, np.arange(float(response.shape[-1]))

    def complaint(self, y: Array, outputs: int) -> str | None:
        good = (y >= 0) & (y < outputs) & (y == np.floor(y))
        wants = (
            f"whole labels from 0 to {outputs - 1}, as many as the module has outputs"
        )
        return _unless(good, y, f"loss={self.name!r} takes {wants}")


def _unless(good: NDArray[np.bool_], y: Array, wants: str) -> str | None:
    return None if good.all() else f"{wants}. Got {y[~good][0]:g}."


def _cross_entropy(z: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(z, y.long(), reduction="none")


def _logistic(z: Tensor, y: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(z[:, 0], y, reduction="none")


def _squared(z: Tensor, y: Tensor) -> Tensor:
    return (z[:, 0] - y) ** 2


def _absolute(z: Tensor, y: Tensor) -> Tensor:
    return (z[:, 0] - y).abs()


NETWORK_LOSSES: dict[str, NumberLoss] = {
    "cross_entropy": ClassLoss("cross_entropy", _cross_entropy),
    "logistic": LogisticLoss("logistic", _logistic),
    "squared": NumberLoss("squared", _squared),
    "absolute": NumberLoss("absolute", _absolute),
}


def network_loss(loss: object) -> NumberLoss:
    """The loss of a name, or a function of the user's own."""
    known = tuple(NETWORK_LOSSES)
    if isinstance(loss, str):
        return NETWORK_LOSSES[one_of("loss", loss, known)]
    if callable(loss):
        return NumberLoss("own", loss, free=True)
    raise InputError(
        f"loss must be one of {', '.join(known)}, or a function of (outputs, labels). Got"
        f" {loss!r}."
    )
