"""Convolutions of many pairs on a GPU, in Triton: products with columns of pixels that are never
written down.

Column l of a pair's product stands for one pixel of one image's result, row k for one of the
pixels around it in one channel. Images and weights may be shared: of `groups` pairs the g-th takes
`x[g // (groups // len(x))]`, and the same of `w`.
"""

# Triton's language has no types.
# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# Found on an H200, for convolutions of 16 and 32 channels:
PIXELS = 64  # of a block
WIDE = 128  # of one whose numbers are rounded
DEPTH = 32  # rows of a block of columns
WARPS = 2
# A product of float32 numbers as three of TF32 numbers, which leaves no larger error than summing
# does: 1e-7 to 5e-7 of the result, where plain float32 products leave 1e-7 to 4e-6.
EXACTLY = "tf32x3"


@triton.jit
def _gathered(
    X,
    at,
    inside,
    k,
    row,
    column,
    sc,
    sh,
    sw,
    K: tl.constexpr,
    AREA: tl.constexpr,
    KW: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    S0: tl.constexpr,
    S1: tl.constexpr,
    P0: tl.constexpr,
    P1: tl.constexpr,
    D0: tl.constexpr,
    D1: tl.constexpr,
    BACK: tl.constexpr,
):
    """(columns, rows) a block of columns: pixels around those at (row, column)."""
    c = k // AREA
    i = (k % AREA) // KW
    j = k % KW
    there = inside[:, None] & (k < K)[None, :]
    if BACK:
        up = row[:, None] + P0 - D0 * i[None, :]
        left = column[:, None] + P1 - D1 * j[None, :]
        there = there & (up >= 0) & (left >= 0)
        there = there & (up < H * S0) & (left < W * S1)
        if (S0 > 1) | (S1 > 1):
            there = there & (up % S0 == 0) & (left % S1 == 0)
            place = (
                at[:, None] + (c * sc)[None, :] + (up // S0) * sh + (left // S1) * sw
            )
        else:
            here = at + (row + P0) * sh + (column + P1) * sw
            away = c * sc - D0 * i * sh - D1 * j * sw
            place = here[:, None] + away[None, :]
    else:
        if (P0 > 0) | (P1 > 0):
            h = row[:, None] * S0 - P0 + D0 * i[None, :]
            w = column[:, None] * S1 - P1 + D1 * j[None, :]
            there = there & (h >= 0) & (w >= 0) & (h < H) & (w < W)
        here = at + (row * S0 - P0) * sh + (column * S1 - P1) * sw
        away = c * sc + D0 * i * sh + D1 * j * sw
        place = here[:, None] + away[None, :]
    return tl.load(X + place, mask=there, other=0.0)


@triton.jit
def _product(
    X,
    A,
    Y,
    blocks,
    N,
    M,
    xr,
    ar,
    xg,
    xn,
    xc,
    xh,
    xw,
    ag,
    am,
    ac,
    ah,
    aw,
    K: tl.constexpr,
    AREA: tl.constexpr,
    KW: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    OH: tl.constexpr,
    OW: tl.constexpr,
    S0: tl.constexpr,
    S1: tl.constexpr,
    P0: tl.constexpr,
    P1: tl.constexpr,
    D0: tl.constexpr,
    D1: tl.constexpr,
    BACK: tl.constexpr,
    EXACT: tl.constexpr,
    BL: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
):
    """y[g, n, m, i, j] = the sum over k of a[g, m, k] times the pixel k of (i, j) in x[g, n]."""
    g = (tl.program_id(0) // blocks).to(tl.int64)
    pixel = (tl.program_id(0) % blocks) * BL + tl.arange(0, BL)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    image = pixel // (OH * OW)
    row = (pixel % (OH * OW)) // OW
    column = pixel % OW
    inside = image < N
    X += (g // xr) * xg
    A += (g // ar) * ag
    total = tl.zeros((BL, BM), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = _gathered(
            X, image * xn, inside, k, row, column, xc, xh, xw,
            K, AREA, KW, H, W, S0, S1, P0, P1, D0, D1, BACK,
        )  # fmt: skip
        at = (k // AREA) * ac + ((k % AREA) // KW) * ah + (k % KW) * aw
        known = (k < K)[:, None] & (m < M)[None, :]
        a = tl.load(A + at[:, None] + (m * am)[None, :], mask=known, other=0.0)
        total = tl.dot(x, a, total, input_precision=EXACT)
    y = g * N * M * OH * OW + image * M * OH * OW + pixel % (OH * OW)
    here = inside[:, None] & (m < M)[None, :]
    places = Y + y[:, None] + (m * OH * OW)[None, :]
    tl.store(places, total.to(Y.dtype.element_ty), mask=here)


@triton.jit
def _slope(
    X,
    G,
    Y,
    deep,
    N,
    M,
    xr,
    gr,
    xg,
    xn,
    xc,
    xh,
    xw,
    gg,
    gn,
    gm,
    gh,
    gw,
    groups,
    SHARE: tl.constexpr,
    K: tl.constexpr,
    AREA: tl.constexpr,
    KW: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    OH: tl.constexpr,
    OW: tl.constexpr,
    S0: tl.constexpr,
    S1: tl.constexpr,
    P0: tl.constexpr,
    P1: tl.constexpr,
    D0: tl.constexpr,
    D1: tl.constexpr,
    EXACT: tl.constexpr,
    BL: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
):
    """y[part, g, m, k] = the sum over a part of the pixels of slope times column."""
    g = (tl.program_id(0) // deep).to(tl.int64)
    k = (tl.program_id(0) % deep) * BK + tl.arange(0, BK)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    part = tl.program_id(2)
    X += (g // xr) * xg
    G += (g // gr) * gg
    total = tl.zeros((BM, BK), dtype=tl.float32)
    for start in range(0, SHARE, BL):
        pixel = part * SHARE + start + tl.arange(0, BL)
        image = pixel // (OH * OW)
        row = (pixel % (OH * OW)) // OW
        column = pixel % OW
        inside = image < N
        x = _gathered(
            X, image * xn, inside, k, row, column, xc, xh, xw,
            K, AREA, KW, H, W, S0, S1, P0, P1, D0, D1, False,
        )  # fmt: skip
        at = image * gn + row * gh + column * gw
        known = (m < M)[:, None] & inside[None, :]
        s = tl.load(G + (m * gm)[:, None] + at[None, :], mask=known, other=0.0)
        total = tl.dot(s, x, total, input_precision=EXACT)
    y = ((part * groups + g) * M + m[:, None]) * K + k[None, :]
    here = (m < M)[:, None] & (k < K)[None, :]
    tl.store(Y + y, total, mask=here)


def _width(size: int, most: int = 64) -> int:
    return min(most, max(16, int(triton.next_power_of_2(size))))


def _digits(precision: str) -> str:
    return "tf32" if precision == "tf32" else EXACTLY


def product(
    x: Tensor, w: Tensor, out: list[int], way: list[int], precision: str, *, back: bool
) -> Tensor:
    """(G, N, M, *out) convolutions of `x` by `w`; `back` is the slope of the images."""
    _, N, depth, H, W = x.shape
    groups = max(len(x), len(w))
    inner, outer = (1, 2) if back else (2, 1)
    M = w.shape[outer]
    area = w.shape[3] * w.shape[4]
    y = x.new_empty((groups, N, M, *out))
    pixels = N * out[0] * out[1]
    long = _width(pixels, PIXELS if precision == "float32" else WIDE)
    blocks = triton.cdiv(pixels, long)
    wide = _width(M)
    at = w.stride()
    _product[(groups * blocks, triton.cdiv(M, wide))](
        x, w, y, blocks, N, M, groups // len(x), groups // len(w), *x.stride(),
        at[0], at[outer], at[inner], at[3], at[4],
        K=depth * area, AREA=area, KW=w.shape[4], H=H, W=W, OH=out[0], OW=out[1],
        S0=way[0], S1=way[1], P0=way[2], P1=way[3], D0=way[4], D1=way[5],
        BACK=back, EXACT=_digits(precision), BL=long, BM=wide, BK=DEPTH,
        num_warps=WARPS,
    )  # fmt: skip
    return y


def slope(
    g: Tensor, x: Tensor, kernel: list[int], way: list[int], precision: str
) -> Tensor:
    """(G, M, C, *kernel) the slopes of the weights."""
    _, N, depth, H, W = x.shape
    groups = max(len(x), len(g))
    M, OH, OW = g.shape[2:]
    K = depth * kernel[0] * kernel[1]
    wide = _width(M)
    deep = triton.cdiv(K, DEPTH)
    tall = triton.cdiv(M, wide)
    pixels = N * OH * OW
    # so many parts that the chip is busy with few pairs too; their sum has one order
    long = _width(pixels, PIXELS)
    parts = max(1, min(triton.cdiv(pixels, 8 * long), 512 // (groups * deep * tall)))
    share = triton.cdiv(triton.cdiv(pixels, parts), long) * long
    y = torch.empty((parts, groups, M, K), dtype=torch.float32, device=x.device)
    _slope[(groups * deep, tall, parts)](
        x, g, y, deep, N, M, groups // len(x), groups // len(g),
        *x.stride(), *g.stride(), groups,
        SHARE=share, K=K, AREA=kernel[0] * kernel[1], KW=kernel[1], H=H, W=W, OH=OH, OW=OW,
        S0=way[0], S1=way[1], P0=way[2], P1=way[3], D0=way[4], D1=way[5],
        EXACT=_digits(precision), BL=long, BM=wide, BK=DEPTH, num_warps=WARPS,
    )  # fmt: skip
    found = y[0] if parts == 1 else y.sum(dim=0)
    return found.to(x.dtype).view(groups, M, depth, *kernel)
