"""Convolutions with a weight per pair, as products of matrices.

`torch.func.vmap` turns a convolution with a weight per pair into a grouped one, which chips do
slowly. Here images are unfolded into columns of pixels, and every pair's convolution is a product
of its weights with columns; those of shared images are unfolded once. On a GPU one kernel does both
(`persfl.learners.pair_kernels`).

Pairs stand along the first axis, images x (Gx, N, C, H, W) and weights w (Gw, O, C, kh, kw). One of
Gx and Gw divides the other: what there is less of is shared by neighbours. A convolution is linear
in both, so its two slopes and itself are each other's slopes.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

from persfl.learners.precision import precision_now

Way = list[int]  # stride, padding and dilation, each for height and width


def _out(image: Sequence[int], kernel: Sequence[int], way: Way) -> list[int]:
    reach = [way[4 + i] * (kernel[i] - 1) for i in (0, 1)]
    room = [image[i] + 2 * way[2 + i] - reach[i] for i in (0, 1)]
    return [(room[i] - 1) // way[i] + 1 for i in (0, 1)]


def _columns(x: Tensor, kernel: Sequence[int], way: Way) -> Tensor:
    """(G, rows, N * pixels) what is around every pixel."""
    out = _out(x.shape[3:], kernel, way)
    x = F.pad(x, (way[3], way[3], way[2], way[2]))
    groups, count, channels = x.shape[:3]
    sg, sn, sc, sh, sw = x.stride()
    shape = (groups, channels, *kernel, count, *out)
    steps = (sg, sc, way[4] * sh, way[5] * sw, sn, way[0] * sh, way[1] * sw)
    return x.as_strided(shape, steps).reshape(groups, channels * math.prod(kernel), -1)


def _folded(u: Tensor, image: list[int], kernel: list[int], way: Way) -> Tensor:
    """(G, N, C, *image) the slope of columns (G, C, *kernel, N, *out)."""
    groups, channels, _, _, count = u.shape[:5]
    high, wide = image[0] + 2 * way[2], image[1] + 2 * way[3]
    x = u.new_zeros((groups, channels, count, high, wide))
    for i, j in itertools.product(range(kernel[0]), range(kernel[1])):
        top, left = way[4] * i, way[5] * j
        bottom = top + way[0] * (u.shape[5] - 1) + 1
        right = left + way[1] * (u.shape[6] - 1) + 1
        x[..., top : bottom : way[0], left : right : way[1]] += u[:, :, i, j]
    inside = x[..., way[2] : high - way[2], way[3] : wide - way[3]]
    return inside.transpose(1, 2).contiguous()


def _in_triton(x: Tensor) -> bool:
    """Whether the kernels of a GPU take these numbers."""
    return x.is_cuda and x.dtype != torch.float64 and _HAS_TRITON


_HAS_TRITON = importlib.util.find_spec("triton") is not None
_MANY = 100_000  # multiplications of a pair from which it is worth a call of its own


def _one_by_one(x: Tensor, w: Tensor, out: Sequence[int]) -> bool:
    """Whether a processor convolves pair by pair: that takes no columns."""
    each = x.shape[1] * w[0].numel() * math.prod(out)
    return len(w) == 1 or (not x.is_cuda and each > _MANY)


@torch.library.custom_op("persfl::pair_convolution", mutates_args=())
def _convolution(x: Tensor, w: Tensor, way: list[int], precision: str) -> Tensor:
    out = _out(x.shape[3:], w.shape[3:], way)
    if len(w) > 1 and _in_triton(x):
        from persfl.learners.pair_kernels import product

        return product(x, w, out, way, precision, back=False)
    # images that several weights see: one product for all of them; and the other way round
    few = min(len(x), len(w))
    images = x.reshape(few, -1, *x.shape[2:])
    weights = w.reshape(few, -1, *w.shape[2:])
    if _one_by_one(x, w, out):
        every = zip(images, weights, strict=True)
        y = torch.stack([F.conv2d(a, b, None, *_ways(way)) for a, b in every])
        y = y.unflatten(2, (-1, w.shape[1])).transpose(1, 2)
    else:
        y = torch.bmm(weights.flatten(2), _columns(images, w.shape[3:], way))
        y = y.reshape(few, -1, w.shape[1], images.shape[1], *out).transpose(2, 3)
    return y.reshape(-1, x.shape[1], w.shape[1], *out).contiguous()


def _ways(way: Way) -> tuple[Way, Way, Way]:
    return way[:2], way[2:4], way[4:]


@_convolution.register_fake
def _(x: Tensor, w: Tensor, way: list[int], precision: str) -> Tensor:
    out = _out(x.shape[3:], w.shape[3:], way)
    return x.new_empty((max(len(x), len(w)), x.shape[1], w.shape[1], *out))


@torch.library.custom_op("persfl::pair_weight_slope", mutates_args=())
def _weight_slope(
    g: Tensor, x: Tensor, kernel: list[int], way: list[int], precision: str
) -> Tensor:
    groups = max(len(g), len(x))
    if _in_triton(x):
        from persfl.learners.pair_kernels import slope

        return slope(g, x, kernel, way, precision)
    g, x = _repeated(g, groups), _repeated(x, groups)
    w = g.new_empty((groups, g.shape[2], x.shape[2], *kernel))
    if _one_by_one(x, w, g.shape[3:]):
        for one, image, slope_ in zip(w, x, g, strict=True):
            one.copy_(_slopes(slope_, image, one, way, 1))
        return w
    u = _columns(x, kernel, way)
    s = g.transpose(1, 2).reshape(groups, g.shape[2], -1)
    return torch.bmm(s, u.transpose(1, 2)).view(w.shape)


def _slopes(g: Tensor, x: Tensor, w: Tensor, way: Way, which: int) -> Tensor:
    """The slope of the images (0) or the weights (1) of one pair."""
    found = torch.ops.aten.convolution_backward(
        g, x, w, None, *_ways(way), False, [0, 0], 1, [which == 0, which == 1, False]
    )
    answer: Tensor = found[which]
    return answer


@_weight_slope.register_fake
def _(
    g: Tensor, x: Tensor, kernel: list[int], way: list[int], precision: str
) -> Tensor:
    return g.new_empty((max(len(g), len(x)), g.shape[2], x.shape[2], *kernel))


@torch.library.custom_op("persfl::pair_image_slope", mutates_args=())
def _image_slope(
    g: Tensor, w: Tensor, image: list[int], way: list[int], precision: str
) -> Tensor:
    groups = max(len(g), len(w))
    if _in_triton(g):
        from persfl.learners.pair_kernels import product

        return product(g, w, image, way, precision, back=True)
    g, w = _repeated(g, groups), _repeated(w, groups)
    if _one_by_one(g, w, g.shape[3:]):
        x = g.new_empty((groups, g.shape[1], w.shape[2], *image))
        for one, slope_, weight in zip(x, g, w, strict=True):
            one.copy_(_slopes(slope_, one, weight, way, 0))
        return x
    s = g.transpose(1, 2).reshape(groups, g.shape[2], -1)
    u = torch.bmm(w.flatten(2).transpose(1, 2), s)
    columns = u.view(*w.shape[:1], *w.shape[2:], g.shape[1], *g.shape[3:])
    return _folded(columns, image, list(w.shape[3:]), way)


@_image_slope.register_fake
def _(
    g: Tensor, w: Tensor, image: list[int], way: list[int], precision: str
) -> Tensor:
    return g.new_empty((max(len(g), len(w)), g.shape[1], w.shape[2], *image))


def _repeated(part: Tensor, groups: int) -> Tensor:
    times = groups // len(part)
    return part if times == 1 else part.repeat_interleave(times, dim=0)


def _mapped(
    op: Callable[..., Tensor],
    info: Any,
    in_dims: tuple[int | None, ...],
    one: Tensor,
    two: Tensor,
    *rest: Any,
) -> tuple[Tensor, int]:
    """The batching rule: a mapped axis becomes pairs, and what has none is shared."""
    count = info.batch_size
    first, second = in_dims[:2]
    y = op(_joined(one, first, count), _joined(two, second, count), *rest)
    return y.unflatten(0, (count, -1)), 0


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
    return slope.unflatten(0, (len(like), -1)).sum(dim=1)


class Convolution(Function):
    """y[g] = x[g] * w[g]"""

    @staticmethod
    def forward(x: Tensor, w: Tensor, way: Way, precision: str) -> Tensor:
        return _convolution(x, w, way, precision)

    setup_context = staticmethod(_kept)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        needs = ctx.needs_input_grad
        dx = dw = None
        if needs[0]:
            dx = _summed(ImageSlope.apply(g, w, list(x.shape[3:]), *ctx.rest), x)
        if needs[1]:
            dw = _summed(WeightSlope.apply(g, x, list(w.shape[3:]), *ctx.rest), w)
        return dx, dw, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *parts: Any) -> tuple[Tensor, int]:
        return _mapped(Convolution.apply, info, in_dims, *parts)


class WeightSlope(Function):
    """How y[g] moves with w[g]."""

    @staticmethod
    def forward(
        g: Tensor, x: Tensor, kernel: list[int], way: Way, precision: str
    ) -> Tensor:
        return _weight_slope(g, x, kernel, way, precision)

    setup_context = staticmethod(_kept)

    @staticmethod
    def backward(ctx: Any, c: Tensor) -> tuple[Tensor | None, ...]:
        g, x = ctx.saved_tensors
        rest = ctx.rest[1:]
        needs = ctx.needs_input_grad
        dg = dx = None
        if needs[0]:
            dg = _summed(Convolution.apply(x, c, *rest), g)
        if needs[1]:
            dx = _summed(ImageSlope.apply(g, c, list(x.shape[3:]), *rest), x)
        return dg, dx, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *parts: Any) -> tuple[Tensor, int]:
        return _mapped(WeightSlope.apply, info, in_dims, *parts)


class ImageSlope(Function):
    """How y[g] moves with x[g]."""

    @staticmethod
    def forward(
        g: Tensor, w: Tensor, image: list[int], way: Way, precision: str
    ) -> Tensor:
        return _image_slope(g, w, image, way, precision)

    setup_context = staticmethod(_kept)

    @staticmethod
    def backward(ctx: Any, c: Tensor) -> tuple[Tensor | None, ...]:
        g, w = ctx.saved_tensors
        rest = ctx.rest[1:]
        needs = ctx.needs_input_grad
        dg = dw = None
        if needs[0]:
            dg = _summed(Convolution.apply(c, w, *rest), g)
        if needs[1]:
            dw = _summed(WeightSlope.apply(g, c, list(w.shape[3:]), *rest), w)
        return dg, dw, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *parts: Any) -> tuple[Tensor, int]:
        return _mapped(ImageSlope.apply, info, in_dims, *parts)


class PairConv2d(nn.Conv2d):
    """What a `Conv2d` becomes inside a learner."""

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        lone = x.ndim == 3
        images = x[None, None] if lone else x[None]
        way = [*self.stride, *map(int, self.padding), *self.dilation]
        y = Convolution.apply(images, weight[None], way, precision_now())
        y = y[0, 0] if lone else y[0]
        return y if bias is None else y + bias[:, None, None]


class PairLinear(nn.Linear):
    """What a `Linear` becomes inside a learner: on a GPU a convolution of single pixels."""

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_cuda or x.ndim != 2 or x.dtype == torch.float64 or not _HAS_TRITON:
            return super().forward(x)
        pixels = x[None, :, :, None, None]
        weights = self.weight[None, :, :, None, None]
        way = [1, 1, 0, 0, 1, 1]
        y = Convolution.apply(pixels, weights, way, precision_now())[0, :, :, 0, 0]
        return y if self.bias is None else y + self.bias


def in_pairs(module: nn.Module) -> None:
    """Let the module's linear layers and plain convolutions be computed as products of pairs;
    others stay as they are.
    """
    for part in module.modules():
        if type(part) is nn.Linear:
            part.__class__ = PairLinear
        elif type(part) is nn.Conv2d and _is_plain(part):
            part.__class__ = PairConv2d


def _is_plain(part: nn.Conv2d) -> bool:
    return (
        part.groups == 1
        and part.padding_mode == "zeros"
        and not isinstance(part.padding, str)
    )
