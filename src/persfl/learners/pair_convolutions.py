"""Convolutions with a weight per pair, as products of matrices.

`torch.func.vmap` turns a convolution with a weight per pair into a grouped one, which chips do
slowly. Here every pair's convolution is a product of its weights with columns of pixels; a mapped
axis of images or weights becomes pairs, and what is not mapped is shared by them. A convolution is
linear in both, so its two slopes and itself are each other's slopes.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.autograd import Function

from persfl.learners.pair_products import (
    Way,
    image_slope,
    pair_convolution,
    weight_slope,
)
from persfl.learners.precision import precision_now


def _mapped(
    op: type[Function],
    info: Any,
    in_dims: tuple[int | None, ...],
    one: Tensor,
    two: Tensor,
    *rest: Any,
) -> tuple[Tensor, int]:
    """The batching rule: a mapped axis becomes pairs, and what has none is shared."""
    count = info.batch_size
    first, second = in_dims[:2]
    y = _of(op, _joined(one, first, count), _joined(two, second, count), *rest)
    return y.reshape(count, -1, *y.shape[1:]), 0


def _of(op: type[Function], *parts: Any) -> Tensor:
    found: Tensor = op.apply(*parts)  # type: ignore[no-untyped-call]
    return found


def _joined(part: Tensor, axis: int | None, count: int) -> Tensor:
    if axis is not None:
        return part.movedim(axis, 0).flatten(0, 1)
    if len(part) == 1:
        return part
    return part.expand(count, *part.shape).flatten(0, 1)


def _kept(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.rest = inputs[2:]


def _summed(slope: Tensor, like: Tensor) -> Tensor:
    """The slope of what several pairs share is the sum of theirs."""
    if len(slope) == len(like):
        return slope
    return slope.reshape(len(like), -1, *slope.shape[1:]).sum(dim=1)


class Convolution(Function):
    """y[g] = x[g] * w[g]"""

    @staticmethod
    def forward(x: Tensor, w: Tensor, way: Way, precision: str) -> Tensor:
        y: Tensor = pair_convolution(x, w, way, precision)
        return y

    setup_context = staticmethod(_kept)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        needs = ctx.needs_input_grad
        dx = dw = None
        if needs[0]:
            dx = _summed(_of(ImageSlope, g, w, list(x.shape[3:]), *ctx.rest), x)
        if needs[1]:
            dw = _summed(_of(WeightSlope, g, x, list(w.shape[3:]), *ctx.rest), w)
        return dx, dw, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *parts: Any) -> tuple[Tensor, int]:
        return _mapped(Convolution, info, in_dims, *parts)


class WeightSlope(Function):
    """How y[g] moves with w[g]."""

    @staticmethod
    def forward(
        g: Tensor, x: Tensor, kernel: list[int], way: Way, precision: str
    ) -> Tensor:
        y: Tensor = weight_slope(g, x, kernel, way, precision)
        return y

    setup_context = staticmethod(_kept)

    @staticmethod
    def backward(ctx: Any, c: Tensor) -> tuple[Tensor | None, ...]:
        g, x = ctx.saved_tensors
        rest = ctx.rest[1:]
        needs = ctx.needs_input_grad
        dg = dx = None
        if needs[0]:
            dg = _summed(_of(Convolution, x, c, *rest), g)
        if needs[1]:
            dx = _summed(_of(ImageSlope, g, c, list(x.shape[3:]), *rest), x)
        return dg, dx, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *parts: Any) -> tuple[Tensor, int]:
        return _mapped(WeightSlope, info, in_dims, *parts)


class ImageSlope(Function):
    """How y[g] moves with x[g]."""

    @staticmethod
    def forward(
        g: Tensor, w: Tensor, image: list[int], way: Way, precision: str
    ) -> Tensor:
        y: Tensor = image_slope(g, w, image, way, precision)
        return y

    setup_context = staticmethod(_kept)

    @staticmethod
    def backward(ctx: Any, c: Tensor) -> tuple[Tensor | None, ...]:
        g, w = ctx.saved_tensors
        rest = ctx.rest[1:]
        needs = ctx.needs_input_grad
        dg = dw = None
        if needs[0]:
            dg = _summed(_of(Convolution, c, w, *rest), g)
        if needs[1]:
            dw = _summed(_of(WeightSlope, g, c, list(w.shape[3:]), *rest), w)
        return dg, dw, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *parts: Any) -> tuple[Tensor, int]:
        return _mapped(ImageSlope, info, in_dims, *parts)


class PairConv2d(nn.Conv2d):
    """What a `Conv2d` becomes inside a learner."""

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        lone = x.ndim == 3
        images = x[None, None] if lone else x[None]
        way = [*self.stride, *map(int, self.padding), *self.dilation]
        y = _of(Convolution, images, weight[None], way, precision_now())
        y = y[0, 0] if lone else y[0]
        return y if bias is None else y + bias[:, None, None]


def in_pairs(module: nn.Module) -> None:
    """Let the module's plain convolutions be computed as products of pairs; others stay as they
    are.
    """
    for part in module.modules():
        if type(part) is nn.Conv2d and _is_plain(part):
            part.__class__ = PairConv2d


def _is_plain(part: nn.Conv2d) -> bool:
    return (
        part.groups == 1
        and part.padding_mode == "zeros"
        and not isinstance(part.padding, str)
    )
