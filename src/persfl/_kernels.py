"""The compiled inner loops; imported only where numba is installed (see `persfl.compiled`).

Each kernel walks over (target, peer) pairs and reads a peer's rows where they lie: nothing is gathered or padded. The arithmetic
is that of `learners/linear.py` with `proposers/gradient.py` and of `seeds.distinct`; tests hold them together.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numba import njit, types

# Sums may be reordered (that is what lets them run in vector registers); NaN and infinity keep their meaning.
_FAST = {"reassoc", "contract", "arcp", "nsz"}

SQUARED, ABSOLUTE, HUBER, LOGISTIC, POISSON = range(5)
ROUNDING = 1e-20  # as in learners/linear.py


@njit(cache=True, fastmath=_FAST, forceinline=True)
def _slope(code, delta, z, y):
    if code == SQUARED:
        return 2.0 * (z - y)
    if code == ABSOLUTE:
        return np.sign(z - y)
    if code == HUBER:
        return min(max(z - y, -delta), delta)
    if code == LOGISTIC:
        return 1.0 / (1.0 + np.exp(-z)) - y
    return np.exp(z) - y


@njit(cache=True, fastmath=_FAST, forceinline=True)
def _value(code, delta, z, y):
    if code == SQUARED:
        return (y - z) ** 2
    r = abs(y - z)
    if code == ABSOLUTE:
        return r
    if code == HUBER:
        return 0.5 * r * r if r <= delta else delta * (r - 0.5 * delta)
    if code == LOGISTIC:
        return max(z, 0.0) - y * z + np.log1p(np.exp(-abs(z)))
    return np.exp(z) - y * z


@njit(cache=True, fastmath=_FAST, forceinline=True)
def _step(X, y, weight, lo, hi, scale, shrink, w, code, delta, out):
    """out = w after one gradient step on rows lo to hi; two rows at a time, so that a weight is loaded once for both."""
    d = X.shape[1]
    for k in range(d):
        out[k] = w[k] * shrink
    base = w[d] if w.shape[0] > d else 0.0
    if w.shape[0] > d:
        out[d] = base
    i = lo
    while i + 1 < hi:
        a, b = base, base
        for k in range(d):
            a += X[i, k] * w[k]
            b += X[i + 1, k] * w[k]
        a = scale * weight[i] * _slope(code, delta, a, y[i])
        b = scale * weight[i + 1] * _slope(code, delta, b, y[i + 1])
        for k in range(d):
            out[k] -= a * X[i, k] + b * X[i + 1, k]
        if out.shape[0] > d:
            out[d] -= a + b
        i += 2
    if i < hi:
        a = base
        for k in range(d):
            a += X[i, k] * w[k]
        a = scale * weight[i] * _slope(code, delta, a, y[i])
        for k in range(d):
            out[k] -= a * X[i, k]
        if out.shape[0] > d:
            out[d] -= a


@njit(cache=True, fastmath=_FAST)
def _more_steps(X, y, weight, lo, hi, scale, shrink, steps, code, delta, now, out):
    for _ in range(1, steps):
        for k in range(out.shape[0]):
            now[k] = out[k]
        _step(X, y, weight, lo, hi, scale, shrink, now, code, delta, out)


@njit(cache=True, fastmath=_FAST, forceinline=True)
def _loss(X, y, weight, lo, hi, w, code, delta):
    """The weighted sum of losses on rows lo to hi."""
    d = X.shape[1]
    base = w[d] if w.shape[0] > d else 0.0
    loss = 0.0
    i = lo
    while i + 1 < hi:
        a, b = base, base
        for k in range(d):
            a += X[i, k] * w[k]
            b += X[i + 1, k] * w[k]
        loss += weight[i] * _value(code, delta, a, y[i]) + weight[i + 1] * _value(code, delta, b, y[i + 1])
        i += 2
    if i < hi:
        a = base
        for k in range(d):
            a += X[i, k] * w[k]
        loss += weight[i] * _value(code, delta, a, y[i])
    return loss


@njit(cache=True, fastmath=_FAST, forceinline=True)
def _mean(loss, floor, total, l2, w, d):
    """The mean of a sum of losses, plus the penalty; a sum below `floor` is rounding."""
    mean = 0.0 if loss < floor else loss / total
    if l2 > 0.0:
        for k in range(d):
            mean += l2 * w[k] * w[k]
    return mean if np.isfinite(mean) else np.inf


@njit(cache=True, fastmath=_FAST)
def _linear_answers(
    X, y, weight, start, total, at, sX, sy, sweight, sstart, stotal, own, models, code, delta, l2, size, steps, losses, lengths
):
    T, S = at.shape
    d, p = X.shape[1], models.shape[1]
    if S and at.max() >= total.shape[0]:
        return at.max()
    shrink = 1.0 - 2.0 * size * l2
    now, proposal = np.empty(p), np.empty(p)
    for t in range(T):
        w, lo, hi, mass = models[t], sstart[own[t]], sstart[own[t] + 1], stotal[own[t]]
        floor = -1.0
        if code == SQUARED:
            floor = 0.0
            for i in range(lo, hi):
                floor += ROUNDING * sweight[i] * sy[i] * sy[i]
        losses[t, 0] = _mean(_loss(sX, sy, sweight, lo, hi, w, code, delta), floor, mass, l2, w, d)
        for s in range(S):
            j = at[t, s]
            if j < 0:
                losses[t, s + 1], lengths[t, s] = np.inf, np.nan
            else:
                _step(X, y, weight, start[j], start[j + 1], size / total[j], shrink, w, code, delta, proposal)
                if steps > 1:
                    _more_steps(X, y, weight, start[j], start[j + 1], size / total[j], shrink, steps, code, delta, now, proposal)
                moved = 0.0
                for k in range(p):
                    moved += (proposal[k] - w[k]) ** 2
                lengths[t, s] = np.sqrt(moved)
                losses[t, s + 1] = _mean(_loss(sX, sy, sweight, lo, hi, proposal, code, delta), floor, mass, l2, proposal, d)
    return -1


@njit(cache=True, fastmath=_FAST)
def _linear_proposals(X, y, weight, start, total, at, models, code, delta, l2, size, steps, out):
    T, K = at.shape
    shrink = 1.0 - 2.0 * size * l2
    now = np.empty(models.shape[1])
    for t in range(T):
        for c in range(K):
            j, proposal = at[t, c], out[t, c]
            if j < 0:
                for k in range(now.shape[0]):
                    proposal[k] = models[t, k]
                continue
            if j >= total.shape[0]:
                return j
            _step(X, y, weight, start[j], start[j + 1], size / total[j], shrink, models[t], code, delta, proposal)
            if steps > 1:
                _more_steps(X, y, weight, start[j], start[j + 1], size / total[j], shrink, steps, code, delta, now, proposal)
    return -1


@njit(cache=True)
def _mix(x):
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(cache=True)
def _distinct(place, who, counts, size):
    drawn = np.empty((who.shape[0], size), dtype=np.int64)
    for t in range(who.shape[0]):
        key = _mix((place ^ np.uint64(0xD1B54A32D192ED03)) + np.uint64(0x9E3779B97F4A7C15) * np.uint64(who[t] + 1))
        for k in range(size):
            key += np.uint64(0x9E3779B97F4A7C15)
            last = counts[t if counts.shape[0] > 1 else 0] - size + k
            pick = np.int64(np.float64(_mix(key) >> np.uint64(11)) * 2.0**-53 * np.float64(last + 1))
            for before in range(k):
                if drawn[t, before] == pick:
                    pick = last
                    break
            drawn[t, k] = pick
    return drawn


_vector, _matrix, _cube = types.float64[::1], types.float64[:, ::1], types.float64[:, :, ::1]
_index, _pairs = types.int64[::1], types.int64[:, ::1]
_rows = (_matrix, _vector, _vector, _index, _vector)
_settings = (types.int64, types.float64, types.float64, types.float64, types.int64)
_signatures: dict[Any, Any] = {
    _linear_answers: types.int64(*_rows, _pairs, *_rows, _index, _matrix, *_settings, _matrix, _matrix),
    _linear_proposals: types.int64(*_rows, _pairs, _matrix, *_settings, _cube),
    _distinct: _pairs(types.uint64, _index, _index, types.int64),
}

linear_answers, linear_proposals, distinct = _linear_answers, _linear_proposals, _distinct


def cached() -> bool:
    """Whether an earlier process left compiled code for every kernel."""
    return all(any(Path(kernel.stats.cache_path).glob(f"_kernels.{kernel.__name__}-*.nbi")) for kernel in _signatures)


def build() -> None:
    """Compile (or load) every kernel for the one set of types it is called with."""
    for kernel, signature in _signatures.items():
        if not kernel.signatures:
            kernel.compile(signature.args)
            kernel.disable_compile()
