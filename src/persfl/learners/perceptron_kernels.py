"""Networks of one hidden layer on a GPU, in Triton: a pair's whole computation is one program.

Between its rows and its loss nothing is written down: the model, its slopes and a block of rows
stay in registers. Rows are read where they lie, so peers' are not gathered either.
"""

# Triton's language has no types.
# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _bent(z, TANH: tl.constexpr):
    """What a layer's sums become; what is no number stays none."""
    return 1.0 - 2.0 / (1.0 + tl.exp(2.0 * z)) if TANH else tl.where(z <= 0, 0.0, z)


@triton.jit
def _rows(X, Y, V, first, count, i, F, f, BR: tl.constexpr):
    """A block of a device's rows: features, labels, weights; 0 where there are none."""
    r = i * BR + tl.arange(0, BR)
    here = r < count
    at = first + r
    known = here[:, None] & (f < F)[None, :]
    x = tl.load(X + at[:, None] * F + f[None, :], mask=known, other=0.0)
    y = tl.load(Y + at, mask=here, other=0.0)
    v = tl.load(V + at, mask=here, other=0.0)
    return x, y, v


@triton.jit
def _loaded(W, f, h, o, F, H, C, B1: tl.constexpr, B2: tl.constexpr):
    """A model: weights and biases of both layers, 0 around them."""
    known = (h < H)[:, None] & (f < F)[None, :]
    w1 = tl.load(W + h[:, None] * F + f[None, :], mask=known, other=0.0)
    W += H * F
    b1 = tl.zeros_like(h).to(tl.float32)
    if B1:
        b1 = tl.load(W + h, mask=h < H, other=0.0)
        W += H
    known = (o < C)[:, None] & (h < H)[None, :]
    w2 = tl.load(W + o[:, None] * H + h[None, :], mask=known, other=0.0)
    b2 = tl.zeros_like(o).to(tl.float32)
    if B2:
        b2 = tl.load(W + C * H + o, mask=o < C, other=0.0)
    return w1, b1, w2, b2


@triton.jit
def _said(x, w1, b1, w2, b2, TANH: tl.constexpr, EXACT: tl.constexpr):
    """What the hidden layer and the outputs say of a block of rows."""
    z = tl.dot(x, tl.trans(w1), input_precision=EXACT)
    hidden = _bent(z + b1[None, :], TANH)
    out = tl.dot(hidden, tl.trans(w2), input_precision=EXACT)
    return hidden, out + b2[None, :]


@triton.jit
def _chances(z, o, C):
    """Of every class, and the logarithm of what they were divided by."""
    z = tl.where((o < C)[None, :], z, -float("inf"))
    most = tl.max(z, axis=1)
    each = tl.exp(z - most[:, None])
    total = tl.sum(each, axis=1)
    return each / total[:, None], tl.log(total) + most


@triton.jit
def _pulls(z, y, o, C, LOSS: tl.constexpr):
    """(rows, outputs) the slopes of every row's loss."""
    away = z - y[:, None]
    alone = (o == 0)[None, :]
    if LOSS == "cross_entropy":
        chances, _ = _chances(z, o, C)
        found = chances - (o[None, :] == y.to(tl.int32)[:, None]).to(tl.float32)
    elif LOSS == "logistic":
        found = tl.where(alone, 1.0 / (1.0 + tl.exp(-z)) - y[:, None], 0.0)
    elif LOSS == "squared":
        found = tl.where(alone, 2.0 * away, 0.0)
    else:
        sign = tl.where(away > 0, 1.0, tl.where(away < 0, -1.0, away))
        found = tl.where(alone, sign, 0.0)
    return found


@triton.jit
def _losses(z, y, o, C, LOSS: tl.constexpr):
    """(rows,) every row's loss."""
    out = tl.sum(tl.where((o == 0)[None, :], z, 0.0), axis=1)
    if LOSS == "cross_entropy":
        _, total = _chances(z, o, C)
        mine = o[None, :] == y.to(tl.int32)[:, None]
        found = total - tl.sum(tl.where(mine, z, 0.0), axis=1)
    elif LOSS == "logistic":
        less = tl.log(1.0 + tl.exp(-tl.abs(out)))
        found = tl.where(out <= 0, 0.0, out) + less - y * out
    elif LOSS == "squared":
        found = (out - y) * (out - y)
    else:
        found = tl.abs(out - y)
    return found


@triton.jit
def _stepped(
    w1, b1, w2, b2, X, Y, V, first, count, steps, rate, ridge, f, h, o, F, C,
    TANH: tl.constexpr, LOSS: tl.constexpr, B1: tl.constexpr, B2: tl.constexpr,
    EXACT: tl.constexpr, BR: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """The model after gradient steps on a device's rows."""
    every = 0.0
    # where all have as many rows, how often to go round is known beforehand
    blocks = EVEN if EVEN else tl.cdiv(count, BR)
    for i in range(0, blocks):
        r = i * BR + tl.arange(0, BR)
        every += tl.sum(tl.load(V + first + r, mask=r < count, other=0.0))
    share = tl.where(every > 0, 1.0 / tl.where(every > 0, every, 1.0), 0.0)
    for _ in range(0, steps):
        d1 = 2.0 * ridge * w1
        c1 = 2.0 * ridge * b1
        d2 = 2.0 * ridge * w2
        c2 = 2.0 * ridge * b2
        for i in range(0, blocks):
            x, y, v = _rows(X, Y, V, first, count, i, F, f, BR)
            hidden, z = _said(x, w1, b1, w2, b2, TANH, EXACT)
            pull = _pulls(z, y, o, C, LOSS) * share
            # a row that does not count takes no part, not even as no number
            pull = tl.where((v > 0)[:, None], pull * v[:, None], 0.0)
            back = tl.dot(pull, w2, input_precision=EXACT)
            back *= 1.0 - hidden * hidden if TANH else (hidden > 0).to(tl.float32)
            d2 = tl.dot(tl.trans(pull), hidden, d2, input_precision=EXACT)
            d1 = tl.dot(tl.trans(back), x, d1, input_precision=EXACT)
            c2 += tl.sum(pull, axis=0)
            c1 += tl.sum(back, axis=0)
        w1 -= rate * d1
        w2 -= rate * d2
        if B1:
            b1 -= rate * c1
        if B2:
            b2 -= rate * c2
    return w1, b1, w2, b2


@triton.jit
def perceptron_answers(
    W, size, THEIR, X, Y, V, START, COUNT, MINE, X0, Y0, V0, START0, COUNT0, OUT,
    S, steps, rate, ridge,
    F: tl.constexpr, H: tl.constexpr, C: tl.constexpr,
    TANH: tl.constexpr, LOSS: tl.constexpr, B1: tl.constexpr, B2: tl.constexpr,
    EXACT: tl.constexpr, BR: tl.constexpr, EVEN: tl.constexpr, EVEN0: tl.constexpr,
    FP: tl.constexpr, HP: tl.constexpr, OP: tl.constexpr,
):  # fmt: skip
    """Losses of the own model and of S answers on a target's rows, and the answers' lengths."""
    t = (tl.program_id(0) // (S + 1)).to(tl.int64)
    s = tl.program_id(0) % (S + 1)
    f = tl.arange(0, FP)
    h = tl.arange(0, HP)
    o = tl.arange(0, OP)
    place = W + t * size
    w1, b1, w2, b2 = _loaded(place, f, h, o, F, H, C, B1, B2)
    peer = tl.load(THEIR + t * S + s - 1, mask=s > 0, other=-1)
    asked = peer >= 0
    first = tl.load(START + peer, mask=asked, other=0)
    count = tl.load(COUNT + peer, mask=asked, other=0).to(tl.int32)
    w1, b1, w2, b2 = _stepped(
        w1, b1, w2, b2, X, Y, V, first, count, tl.where(s > 0, steps, 0),
        rate, ridge, f, h, o, F, C, TANH, LOSS, B1, B2, EXACT, BR, EVEN,
    )  # fmt: skip
    own = tl.load(MINE + t)
    first = tl.load(START0 + own)
    count = tl.load(COUNT0 + own).to(tl.int32)
    value = 0.0
    every = 0.0
    blocks = EVEN0 if EVEN0 else tl.cdiv(count, BR)
    for i in range(0, blocks):
        x, y, v = _rows(X0, Y0, V0, first, count, i, F, f, BR)
        _, z = _said(x, w1, b1, w2, b2, TANH, EXACT)
        each = _losses(z, y, o, C, LOSS)
        value += tl.sum(tl.where(v > 0, each * v, 0.0))
        every += tl.sum(v)
    squares = tl.sum(w1 * w1) + tl.sum(b1 * b1) + tl.sum(w2 * w2) + tl.sum(b2 * b2)
    value = value / every
    if ridge > 0:
        value += ridge * squares
    tl.store(OUT + t * (2 * S + 1) + s, value)
    u1, a1, u2, a2 = _loaded(place, f, h, o, F, H, C, B1, B2)
    far = tl.sum((w1 - u1) * (w1 - u1)) + tl.sum((w2 - u2) * (w2 - u2))
    far += tl.sum((b1 - a1) * (b1 - a1)) + tl.sum((b2 - a2) * (b2 - a2))
    tl.store(OUT + t * (2 * S + 1) + S + s, tl.sqrt(far), mask=s > 0)


@triton.jit
def perceptron_mixes(
    W, size, THEIR, SHARE, X, Y, V, START, COUNT, OUT,
    K, steps, rate, ridge,
    F: tl.constexpr, H: tl.constexpr, C: tl.constexpr,
    TANH: tl.constexpr, LOSS: tl.constexpr, B1: tl.constexpr, B2: tl.constexpr,
    EXACT: tl.constexpr, BR: tl.constexpr, EVEN: tl.constexpr,
    FP: tl.constexpr, HP: tl.constexpr, OP: tl.constexpr,
):  # fmt: skip
    """A target's model and K answers, mixed by their shares."""
    t = tl.program_id(0).to(tl.int64)
    f = tl.arange(0, FP)
    h = tl.arange(0, HP)
    o = tl.arange(0, OP)
    place = W + t * size
    w1, b1, w2, b2 = _loaded(place, f, h, o, F, H, C, B1, B2)
    share = tl.load(SHARE + t * (K + 1)).to(tl.float32)
    m1 = tl.where(share > 0, share * w1, 0.0)
    n1 = tl.where(share > 0, share * b1, 0.0)
    m2 = tl.where(share > 0, share * w2, 0.0)
    n2 = tl.where(share > 0, share * b2, 0.0)
    for k in range(0, K):
        share = tl.load(SHARE + t * (K + 1) + k + 1).to(tl.float32)
        if share > 0:
            peer = tl.load(THEIR + t * K + k)
            first = tl.load(START + peer)
            count = tl.load(COUNT + peer).to(tl.int32)
            u1, a1, u2, a2 = _stepped(
                w1, b1, w2, b2, X, Y, V, first, count, steps,
                rate, ridge, f, h, o, F, C, TANH, LOSS, B1, B2, EXACT, BR, EVEN,
            )  # fmt: skip
            m1 += share * u1
            n1 += share * a1
            m2 += share * u2
            n2 += share * a2
    place = OUT + t * size
    known = (h < H)[:, None] & (f < F)[None, :]
    tl.store(place + h[:, None] * F + f[None, :], m1, mask=known)
    place += H * F
    if B1:
        tl.store(place + h, n1, mask=h < H)
        place += H
    known = (o < C)[:, None] & (h < H)[None, :]
    tl.store(place + o[:, None] * H + h[None, :], m2, mask=known)
    if B2:
        tl.store(place + C * H + o, n2, mask=o < C)
