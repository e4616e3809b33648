"""Products of weights and columns of pixels, a weight per pair: what a convolution and its two
slopes are made of.

Pairs stand along the first axis, images x (Gx, N, C, H, W) and weights w (Gw, O, C, kh, kw). One of
Gx and Gw divides the other: what there is less of is shared by neighbours. On a GPU one kernel
unfolds and multiplies (`persfl.learners.pair_kernels`).
"""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

Way = list[int]  # stride, padding and dilation, each for height and width


def _out(image: Sequence[int], kernel: Sequence[int], way: Way) -> list[int]:
    """Height and width of what a convolution gives."""
    stride, padding, dilation = _ways(way)
    found = []
    for i in (0, 1):
        reach = dilation[i] * (kernel[i] - 1)
        room = image[i] + 2 * padding[i] - reach
        found.append((room - 1) // stride[i] + 1)
    return found


def _columns(x: Tensor, kernel: Sequence[int], way: Way) -> Tensor:
    """(G, rows, N * pixels) what is around every pixel."""
    out = _out(x.shape[3:], kernel, way)
    stride, padding, dilation = _ways(way)
    high, wide = padding
    x = F.pad(x, (wide, wide, high, high))
    groups, count, channels = x.shape[:3]
    sg, sn, sc, sh, sw = x.stride()
    shape = (groups, channels, *kernel, count, *out)
    within = (dilation[0] * sh, dilation[1] * sw)
    between = (stride[0] * sh, stride[1] * sw)
    columns = x.as_strided(shape, (sg, sc, *within, sn, *between))
    return columns.reshape(groups, channels * math.prod(kernel), -1)


def _folded(u: Tensor, image: list[int], kernel: list[int], way: Way) -> Tensor:
    """(G, N, C, *image) the slope of columns (G, C, *kernel, N, *out)."""
    groups, channels, _, _, count = u.shape[:5]
    stride, padding, dilation = _ways(way)
    size = [image[i] + 2 * padding[i] for i in (0, 1)]
    reach = [stride[i] * (u.shape[5 + i] - 1) + 1 for i in (0, 1)]
    x = u.new_zeros((groups, channels, count, *size))
    for i, j in itertools.product(range(kernel[0]), range(kernel[1])):
        top = dilation[0] * i
        left = dilation[1] * j
        down = slice(top, top + reach[0], stride[0])
        across = slice(left, left + reach[1], stride[1])
        x[..., down, across] += u[:, :, i, j]
    rows, columns = (slice(padding[i], size[i] - padding[i]) for i in (0, 1))
    return x[..., rows, columns].transpose(1, 2).contiguous()


def in_triton(x: Tensor) -> bool:
    """Whether the kernels of a GPU take these numbers."""
    return x.is_cuda and x.dtype != torch.float64 and HAS_TRITON


HAS_TRITON = importlib.util.find_spec("triton") is not None
_MANY = 100_000  # multiplications of a pair from which it is worth a call of its own


def _one_by_one(x: Tensor, w: Tensor, out: Sequence[int]) -> bool:
    """Whether a processor convolves pair by pair: that takes no columns."""
    each = x.shape[1] * w[0].numel() * math.prod(out)
    return len(w) == 1 or (not x.is_cuda and each > _MANY)


@torch.library.custom_op("persfl::pair_convolution", mutates_args=())
def pair_convolution(x: Tensor, w: Tensor, way: list[int], precision: str) -> Tensor:
    """(G, N, O, height, width) every pair's images, convolved by its weights."""
    out = _out(x.shape[3:], w.shape[3:], way)
    if len(w) > 1 and in_triton(x):
        from persfl.learners.pair_kernels import product

        return product(x, w, out, way, precision, back=False)
    # images that several weights see: one product for all of them; and the other way round
    few = min(len(x), len(w))
    images = x.reshape(few, -1, *x.shape[2:])
    weights = w.reshape(few, -1, *w.shape[2:])
    kinds = w.shape[1]
    if _one_by_one(x, w, out):
        how = _ways(way)
        every = zip(images, weights, strict=True)
        y = torch.stack([F.conv2d(a, b, None, *how) for a, b in every])
        y = y.reshape(*y.shape[:2], -1, kinds, *out)
        y = y.transpose(1, 2)
    else:
        columns = _columns(images, w.shape[3:], way)
        y = torch.bmm(weights.flatten(2), columns)
        y = y.reshape(few, -1, kinds, images.shape[1], *out)
        y = y.transpose(2, 3)
    return y.reshape(-1, x.shape[1], kinds, *out).contiguous()


def _ways(way: Way) -> tuple[Way, Way, Way]:
    """Stride, padding and dilation."""
    return way[:2], way[2:4], way[4:]


@pair_convolution.register_fake
def _(x: Tensor, w: Tensor, way: list[int], precision: str) -> Tensor:
    out = _out(x.shape[3:], w.shape[3:], way)
    groups = max(len(x), len(w))
    return x.new_empty((groups, x.shape[1], w.shape[1], *out))


@torch.library.custom_op("persfl::pair_weight_slope", mutates_args=())
def weight_slope(
    g: Tensor, x: Tensor, kernel: list[int], way: list[int], precision: str
) -> Tensor:
    """(G, O, C, *kernel) how results with slopes `g` move with the weights."""
    groups = max(len(g), len(x))
    if in_triton(x):
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
    wanted = [which == 0, which == 1, False]
    found = torch.ops.aten.convolution_backward(
        g, x, w, None, *_ways(way), False, [0, 0], 1, wanted
    )
    answer: Tensor = found[which]
    return answer


@weight_slope.register_fake
def _(
    g: Tensor, x: Tensor, kernel: list[int], way: list[int], precision: str
) -> Tensor:
    groups = max(len(g), len(x))
    return g.new_empty((groups, g.shape[2], x.shape[2], *kernel))


@torch.library.custom_op("persfl::pair_image_slope", mutates_args=())
def image_slope(
    g: Tensor, w: Tensor, image: list[int], way: list[int], precision: str
) -> Tensor:
    """(G, N, C, *image) how results with slopes `g` move with the images."""
    groups = max(len(g), len(w))
    if in_triton(g):
        from persfl.learners.pair_kernels import product

        return product(g, w, image, way, precision, back=True)
    g, w = _repeated(g, groups), _repeated(w, groups)
    if _one_by_one(g, w, g.shape[3:]):
        x = g.new_empty((groups, g.shape[1], w.shape[2], *image))
        for one, slope_, weight in zip(x, g, w, strict=True):
            one.copy_(_slopes(slope_, one, weight, way, 0))
        return x
    s = g.transpose(1, 2).reshape(groups, g.shape[2], -1)
    turned = w.flatten(2).transpose(1, 2)
    around = (groups, *w.shape[2:])
    pixels = (g.shape[1], *g.shape[3:])
    columns = torch.bmm(turned, s).view(*around, *pixels)
    return _folded(columns, image, list(w.shape[3:]), way)


@image_slope.register_fake
def _(g: Tensor, w: Tensor, image: list[int], way: list[int], precision: str) -> Tensor:
    groups = max(len(g), len(w))
    return g.new_empty((groups, g.shape[1], w.shape[2], *image))


def _repeated(part: Tensor, groups: int) -> Tensor:
    times = groups // len(part)
    return part if times == 1 else part.repeat_interleave(times, dim=0)
