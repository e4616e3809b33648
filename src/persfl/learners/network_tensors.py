"""What a network computes, on torch tensors: one model and one device's rows.

There are no leading axes here: `persfl.learners.network_batches` adds them with `torch.func.vmap`.
torch is optional, so this module is imported once there is a network, and not before.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, grad_and_value

from persfl.errors import InputError
from persfl.learners.frozen_parts import Head, frozen_body
from persfl.learners.network_module import numbers_inside, still_parts, unsteady
from persfl.learners.precision import precision_now

if TYPE_CHECKING:
    from persfl.learners.network_losses import NumberLoss
    from persfl.learners.network_module import Slot
    from persfl.traits import Parts

    Place = tuple[torch.device, torch.dtype]

_FAR_BELOW = -1e4  # an output that takes nothing from the other classes


class CutNetwork(NamedTuple):
    """A network behind a frozen body."""

    features: Callable[[Tensor], Tensor]
    """(rows, features) what the body makes of rows."""
    rest: NetworkTensors


def _like(part: Tensor, X: Tensor) -> Tensor:
    return part.to(X.device, X.dtype if part.is_floating_point() else part.dtype)


def _shorter(part: Tensor) -> Tensor:
    return part.bfloat16() if part.is_floating_point() else part


@dataclass(frozen=True, eq=False)
class NetworkTensors:
    """A module as functions of a model's vector; those before `trained` are its parameters, the
    rest is what steps leave alone.
    """

    module: nn.Module
    slots: tuple[Slot, ...]
    trained: int
    loss: NumberLoss
    l2: float
    shape: tuple[int, ...] | None
    dtype: torch.dtype
    widths: dict[int, int] = field(default_factory=dict)  # outputs by features
    insides: dict[int, int] = field(default_factory=dict)  # see `width`
    places: dict[Place, Parts] = field(default_factory=dict)  # see `still`
    cuts: dict[int, CutNetwork | None] = field(default_factory=dict)  # see `cut`

    @property
    def width(self) -> int:
        """About how many numbers a row takes on its way through the module and back."""
        features = max(self.widths, default=0)
        if self.shape is not None:
            features = math.prod(self.shape)
        if not features:  # no row has been seen yet
            return 4 * sum(s.shape[0] for s in self.slots if len(s.shape) >= 2)
        if features not in self.insides:
            row = self.shaped(torch.zeros((1, features), dtype=self.dtype))
            self.insides[features] = numbers_inside(self.module, row)
        return self.insides[features]

    # One model, one device's rows

    def parts(self, w: Tensor) -> tuple[Parts, Parts]:
        """Named views of a model's vector: parameters, and buffers, which steps do not change."""
        moving: Parts = {}
        fixed: Parts = {}
        for name, shape, begin, end in self.slots:
            side = moving if begin < self.trained else fixed
            side[name] = w[begin:end].view(shape)
        return moving, fixed

    def joined(self, parts: Parts) -> Tensor:
        """The vector again."""
        known = [parts[slot.name] for slot in self.slots if slot.name in parts]
        return torch.cat([part.reshape(-1) for part in known])

    def said(self, parts: Parts, X: Tensor) -> Tensor:
        """(rows, outputs) what the module says."""
        rows = self.shaped(X)
        every = self.still(X) | parts
        if precision_now() == "bf16":
            short = {name: _shorter(part) for name, part in every.items()}
            said = functional_call(self.module, short, (rows.bfloat16(),))
            out: Tensor = said.to(X.dtype)
        else:
            out = functional_call(self.module, every, (rows,))
        return out if out.ndim == 2 else out.reshape(X.shape[0], -1)

    def still(self, X: Tensor) -> Parts:
        """What is frozen, and whole numbers, where rows are: the same for all models."""
        place = X.device, X.dtype
        if place not in self.places:
            known = still_parts(self.module)
            self.places[place] = {k: _like(v, X) for k, v in known.items()}
        return self.places[place]

    def cut(self, features: int) -> CutNetwork | None:
        """The frozen part before anything moves, and the rest, for rows of so many features; None
        where there is no such part.
        """
        if features not in self.cuts:
            self.cuts[features] = self._cut(features)
        return self.cuts[features]

    def _cut(self, features: int) -> CutNetwork | None:
        known = still_parts(self.module).values()
        frozen = any(value.is_floating_point() for value in known)
        if not frozen or isinstance(self.module, Head):  # which is the rest already
            return None
        moving = {slot.name for slot in self.slots}
        place = torch.Generator().manual_seed(0)
        rows = torch.randn((2, features), dtype=self.dtype, generator=place)
        found = frozen_body(self.module, moving, self.shaped(rows))
        if found is None:
            return None
        slots = tuple(s._replace(name=f"rest.{s.name}") for s in self.slots)
        head = NetworkTensors(
            found.head, slots, self.trained, self.loss, self.l2, None, self.dtype
        )
        return CutNetwork(lambda X: found.features(self.shaped(X)), head)

    def shaped(self, X: Tensor) -> Tensor:
        """Rows as the module wants them."""
        return X if self.shape is None else X.reshape(X.shape[0], *self.shape)

    def outputs(self, w: Tensor, X: Tensor) -> Tensor:
        """(rows, outputs) what the module says."""
        moving, fixed = self.parts(w)
        return self.said(moving | fixed, X)

    def losses(self, w: Tensor, X: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """The weighted mean loss."""
        moving, fixed = self.parts(w)
        return self.part_loss(moving | fixed, X, y, weight)

    def part_loss(self, parts: Parts, X: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """The weighted mean loss."""
        return self._sum(parts, X, y, weight) / weight.sum() + self._ridge(parts)

    def slopes(
        self,
        w: Tensor,
        X: Tensor,
        y: Tensor,
        weight: Tensor,
        seen: Tensor | None = None,
    ) -> Tensor:
        """(size,) the gradient of `losses`; 0 for running statistics, and where there are no
        rows.
        """
        moving, fixed = self.parts(w)
        found = self.part_slopes(moving, fixed, X, y, weight, seen)
        return torch.cat([self.joined(found), torch.zeros_like(w[self.trained :])])

    def part_slopes(
        self,
        parts: Parts,
        fixed: Parts,
        X: Tensor,
        y: Tensor,
        weight: Tensor,
        seen: Tensor | None = None,
    ) -> Parts:
        """The gradient by part: slopes of slices of a vector would each be a vector of zeros to
        add up.
        """
        found: Parts = grad(self._aim(fixed, X, y, weight, seen))(parts)
        return found

    def slope_and_loss(
        self,
        w: Tensor,
        X: Tensor,
        y: Tensor,
        weight: Tensor,
        seen: Tensor | None = None,
    ) -> Tensor:
        """(size + 1,) `slopes` and `losses` from one pass; both 0 without rows."""
        moving, fixed = self.parts(w)
        slopes, value = grad_and_value(self._aim(fixed, X, y, weight, seen))(moving)
        still = torch.zeros_like(w[self.trained :])
        return torch.cat([self.joined(slopes), still, value.reshape(1)])

    def _aim(
        self,
        fixed: Parts,
        X: Tensor,
        y: Tensor,
        weight: Tensor,
        seen: Tensor | None = None,
    ) -> Callable[[Parts], Tensor]:
        """What steps descend: `part_loss` of the parts that move, but without rows only the
        ridge, so that there is no slope.
        """
        total = weight.sum()
        total = torch.where(total > 0, total, torch.ones_like(total))
        return lambda some: (
            self._sum(some | fixed, X, y, weight, seen) / total + self._ridge(some)
        )

    def _ridge(self, parts: Parts) -> Tensor | float:
        if not self.l2:
            return 0.0
        moving = [slot.name for slot in self.slots if slot.begin < self.trained]
        return self.l2 * sum((parts[name] ** 2).sum() for name in moving)

    def _sum(
        self,
        parts: Parts,
        X: Tensor,
        y: Tensor,
        weight: Tensor,
        seen: Tensor | None = None,
    ) -> Tensor:
        z = self.said(parts, X)
        if seen is not None:  # far below the others, a class takes nothing from them
            z = torch.where(seen > 0, z, torch.full_like(z, _FAR_BELOW))
        each = self.loss.each(z, y)
        return (torch.where(weight > 0, each, torch.zeros_like(each)) * weight).sum()

    def width_of_output(self, features: int) -> int:
        """How many numbers the module says about a row."""
        # once found, they are kept: rows of a stream are checked every round
        if features not in self.widths:
            self.widths[features] = self._width_of_output(features)
        return self.widths[features]

    def _width_of_output(self, features: int) -> int:
        place = torch.Generator().manual_seed(0)
        rows = torch.randn((2, features), dtype=self.dtype, generator=place)
        try:
            with torch.no_grad():
                z = self.module(self.shaped(rows))
                trouble = unsteady(self.module, self.shaped(rows), z)
        except Exception as error:  # whatever a module of the user's says
            text = str(error).strip().splitlines()
            raise InputError(
                f"the module does not take rows of {features} features in"
                f" {str(self.dtype).removeprefix('torch.')}:"
                f" {text[0] if text else repr(error)}"
            ) from error
        if not isinstance(z, Tensor) or not z.ndim or len(z) != 2:
            raise InputError(
                "the module must give one entry per row along its first axis. Got something else."
            )
        if trouble:
            raise InputError(trouble)
        return z.numel() // 2
