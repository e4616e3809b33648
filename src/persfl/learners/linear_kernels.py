"""Linear models of one output on a GPU, in Triton: a pair's whole computation is one program.

Rows are read where they lie; between them and a loss nothing is written down.
"""

# Triton's language has no types.
# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _block(X, Y, V, first, count, i, F, f, BR: tl.constexpr):
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
def _pull(z, y, delta, KIND: tl.constexpr):
    """(rows,) the slopes of every row's loss."""
    away = z - y
    if KIND == "squared":
        found = 2.0 * away
    elif KIND == "absolute":
        found = tl.where(away > 0, 1.0, tl.where(away < 0, -1.0, away))
    elif KIND == "huber":
        found = tl.where(away < -delta, -delta, tl.where(away > delta, delta, away))
    elif KIND == "logistic":
        found = 1.0 / (1.0 + tl.exp(-z)) - y
    else:
        found = tl.exp(z) - y
    return found


@triton.jit
def _value(z, y, delta, KIND: tl.constexpr):
    """(rows,) every row's loss."""
    far = tl.abs(z - y)
    if KIND == "squared":
        found = far * far
    elif KIND == "absolute":
        found = far
    elif KIND == "huber":
        found = tl.where(far <= delta, 0.5 * far * far, delta * (far - 0.5 * delta))
    elif KIND == "logistic":
        less = tl.log(1.0 + tl.exp(-tl.abs(z)))
        found = tl.where(z <= 0, 0.0, z) + less - y * z
    else:
        found = tl.exp(z) - y * z
    return found


@triton.jit
def _moved(
    w, b, X, Y, V, first, count, steps, rate, ridge, delta, F, f,
    KIND: tl.constexpr, INTERCEPT: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    """The model after gradient steps on a device's rows."""
    every = 0.0
    for i in range(0, tl.cdiv(count, BR)):
        r = i * BR + tl.arange(0, BR)
        every += tl.sum(tl.load(V + first + r, mask=r < count, other=0.0))
    share = tl.where(every > 0, 1.0 / tl.where(every > 0, every, 1.0), 0.0)
    for _ in range(0, steps):
        slope = 2.0 * ridge * w
        up = 0.0
        for i in range(0, tl.cdiv(count, BR)):
            x, y, v = _block(X, Y, V, first, count, i, F, f, BR)
            z = tl.sum(x * w[None, :], axis=1) + b
            pull = _pull(z, y, delta, KIND)
            # a row that does not count takes no part, not even as no number
            pull = tl.where(v > 0, pull * v * share, 0.0)
            slope += tl.sum(pull[:, None] * x, axis=0)
            up += tl.sum(pull)
        w -= rate * slope
        if INTERCEPT:
            b -= rate * up
    return w, b


@triton.jit
def linear_answers(
    W, size, THEIR, X, Y, V, START, COUNT, MINE, X0, Y0, V0, START0, COUNT0, OUT,
    S, steps, rate, ridge, delta, floor,
    F: tl.constexpr, KIND: tl.constexpr, INTERCEPT: tl.constexpr,
    BR: tl.constexpr, FP: tl.constexpr,
):  # fmt: skip
    """Losses of the own model and of S answers on a target's rows, and the answers' lengths."""
    t = (tl.program_id(0) // (S + 1)).to(tl.int64)
    s = tl.program_id(0) % (S + 1)
    f = tl.arange(0, FP)
    place = W + t * size
    start = tl.load(place + f, mask=f < F, other=0.0)
    base = 0.0
    if INTERCEPT:
        base = tl.load(place + F)
    peer = tl.load(THEIR + t * S + s - 1, mask=s > 0, other=-1)
    asked = peer >= 0
    first = tl.load(START + peer, mask=asked, other=0)
    count = tl.load(COUNT + peer, mask=asked, other=0).to(tl.int32)
    w, b = _moved(
        start, base, X, Y, V, first, count, tl.where(s > 0, steps, 0),
        rate, ridge, delta, F, f, KIND, INTERCEPT, BR,
    )  # fmt: skip
    own = tl.load(MINE + t)
    first = tl.load(START0 + own)
    count = tl.load(COUNT0 + own).to(tl.int32)
    value = 0.0
    every = 0.0
    scale = 0.0
    for i in range(0, tl.cdiv(count, BR)):
        x, y, v = _block(X0, Y0, V0, first, count, i, F, f, BR)
        z = tl.sum(x * w[None, :], axis=1) + b
        value += tl.sum(tl.where(v > 0, _value(z, y, delta, KIND) * v, 0.0))
        every += tl.sum(v)
        if KIND == "absolute":
            scale += tl.sum(v * tl.abs(y))
        else:
            scale += tl.sum(v * y * y)
    value = value / every
    if floor > 0:  # losses this small are rounding
        value = tl.where(value < floor * scale / every, 0.0, value)
    if ridge > 0:
        value += ridge * tl.sum(w * w)
    tl.store(OUT + t * (2 * S + 1) + s, value)
    far = tl.sum((w - start) * (w - start)) + (b - base) * (b - base)
    tl.store(OUT + t * (2 * S + 1) + S + s, tl.sqrt(far), mask=s > 0)


@triton.jit
def linear_mixes(
    W, size, THEIR, SHARE, X, Y, V, START, COUNT, OUT,
    K, steps, rate, ridge, delta,
    F: tl.constexpr, KIND: tl.constexpr, INTERCEPT: tl.constexpr,
    BR: tl.constexpr, FP: tl.constexpr,
):  # fmt: skip
    """A target's model and K answers, mixed by their shares."""
    t = tl.program_id(0).to(tl.int64)
    f = tl.arange(0, FP)
    place = W + t * size
    w = tl.load(place + f, mask=f < F, other=0.0)
    b = 0.0
    if INTERCEPT:
        b = tl.load(place + F)
    share = tl.load(SHARE + t * (K + 1)).to(tl.float32)
    mix = tl.where(share > 0, share * w, 0.0)
    base = tl.where(share > 0, share * b, 0.0)
    for k in range(0, K):
        share = tl.load(SHARE + t * (K + 1) + k + 1).to(tl.float32)
        if share > 0:
            peer = tl.load(THEIR + t * K + k)
            first = tl.load(START + peer)
            count = tl.load(COUNT + peer).to(tl.int32)
            u, a = _moved(
                w, b, X, Y, V, first, count, steps,
                rate, ridge, delta, F, f, KIND, INTERCEPT, BR,
            )  # fmt: skip
            mix += share * u
            base += share * a
    tl.store(OUT + t * size + f, mix, mask=f < F)
    if INTERCEPT:
        tl.store(OUT + t * size + F, base)
