"""The compiled inner loops; imported only where numba is installed (see `persfl.compiled`).

Each kernel walks over (target, peer) pairs and reads a peer's rows where they lie: nothing is
gathered or padded. The arithmetic is that of `learners/linear.py` with `proposers/gradient.py` and
of `seeds.distinct`; tests hold them together.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numba import njit, types
from numba.core.caching import NullCache

# Sums may be reordered (that is what lets them run in vector registers); NaN and infinity keep
# their meaning.
_FAST = {"reassoc", "contract", "arcp", "nsz"}

SQUARED, ABSOLUTE, HUBER, LOGISTIC, POISSON = range(5)
ROUNDING = 1e-24  # as in learners/linear.py


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
def _weighted(weight, number):
    """A row of weight 0 says nothing, not even infinity."""
    return weight * number if weight > 0.0 else 0.0


@njit(cache=True, fastmath=_FAST, nogil=True)
def _linear_pairs(
    X,
    y,
    weight,
    start,
    total,
    at,
    sX,
    sy,
    sweight,
    sstart,
    stotal,
    own,
    models,
    code,
    delta,
    l2,
    size,
    steps,
    losses,
    lengths,
    out,
):
    """Every pair's gradient steps, their length, and their loss on the asker's rows; the proposals
    too where `out` has room.

    Returns -1, or the first index that names no device. Everything stands in one function on
    purpose: a call per pair would count references to all its arrays, which at 20 features costs as
    much as the arithmetic.
    """
    T, S = at.shape
    d, p = X.shape[1], models.shape[1]
    if S > 0 and at.max() >= total.shape[0]:
        return at.max()
    shrink = 1.0 - 2.0 * size * l2
    now, proposal = np.empty(p), np.empty(p)
    for t in range(T):
        lo, hi, mass = sstart[own[t]], sstart[own[t] + 1], stotal[own[t]]
        floor = -np.inf
        if code in (SQUARED, HUBER):
            floor = 0.0
            for i in range(lo, hi):
                floor += ROUNDING * sweight[i] * sy[i] * sy[i]
        elif code == ABSOLUTE:
            floor = 0.0
            for i in range(lo, hi):
                floor += np.sqrt(ROUNDING) * sweight[i] * abs(sy[i])
        for s in range(S + 1):
            for k in range(p):
                proposal[k] = models[t, k]
            if s > 0:
                j = at[t, s - 1]
                if j < 0:
                    losses[t, s], lengths[t, s - 1] = np.inf, np.nan
                else:
                    scale = size / total[j]
                    for _ in range(steps):
                        for k in range(p):
                            now[k] = proposal[k]
                        for k in range(d):
                            proposal[k] *= shrink
                        base = now[d] if p > d else 0.0
                        i = start[j]
                        # two rows at a time, so that a weight is loaded once for both
                        while i + 1 < start[j + 1]:
                            a, b = base, base
                            for k in range(d):
                                a += X[i, k] * now[k]
                                b += X[i + 1, k] * now[k]
                            a = scale * _weighted(
                                weight[i], _slope(code, delta, a, y[i])
                            )
                            b = scale * _weighted(
                                weight[i + 1], _slope(code, delta, b, y[i + 1])
                            )
                            for k in range(d):
                                proposal[k] -= a * X[i, k] + b * X[i + 1, k]
                            if p > d:
                                proposal[d] -= a + b
                            i += 2
                        if i < start[j + 1]:
                            a = base
                            for k in range(d):
                                a += X[i, k] * now[k]
                            a = scale * _weighted(
                                weight[i], _slope(code, delta, a, y[i])
                            )
                            for k in range(d):
                                proposal[k] -= a * X[i, k]
                            if p > d:
                                proposal[d] -= a
                    moved = 0.0
                    for k in range(p):
                        moved += (proposal[k] - models[t, k]) ** 2
                    lengths[t, s - 1] = np.sqrt(moved)
                if out.shape[1] > 0:
                    for k in range(p):
                        out[t, s - 1, k] = proposal[k]
                if j < 0:
                    continue
            base = proposal[d] if p > d else 0.0
            loss = 0.0
            i = lo
            while i + 1 < hi:
                a, b = base, base
                for k in range(d):
                    a += sX[i, k] * proposal[k]
                    b += sX[i + 1, k] * proposal[k]
                loss += _weighted(sweight[i], _value(code, delta, a, sy[i]))
                loss += _weighted(sweight[i + 1], _value(code, delta, b, sy[i + 1]))
                i += 2
            if i < hi:
                a = base
                for k in range(d):
                    a += sX[i, k] * proposal[k]
                loss += _weighted(sweight[i], _value(code, delta, a, sy[i]))
            loss = 0.0 if loss < floor else loss / mass
            if l2 > 0.0:
                for k in range(d):
                    loss += l2 * proposal[k] * proposal[k]
            losses[t, s] = loss if np.isfinite(loss) else np.inf
    return -1


@njit(cache=True)
def _mix(x):
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(cache=True)
def _distinct(place, who, counts, size):
    drawn = np.empty((who.shape[0], size), dtype=np.int64)
    # then it is quicker to note who took a number last than to look back
    few = who.shape[0] > 1 and counts.max() <= 2**14
    taker = np.full(counts.max() if few else 0, -1, dtype=np.int64)
    for t in range(who.shape[0]):
        key = _mix(
            (place ^ np.uint64(0xD1B54A32D192ED03))
            + np.uint64(0x9E3779B97F4A7C15) * np.uint64(who[t] + 1)
        )
        for k in range(size):
            key += np.uint64(0x9E3779B97F4A7C15)
            last = counts[t if counts.shape[0] > 1 else 0] - size + k
            pick = np.int64(
                np.float64(_mix(key) >> np.uint64(11)) * 2.0**-53 * np.float64(last + 1)
            )
            if few:
                pick = last if taker[pick] == t else pick
                taker[pick] = t
            else:
                for before in range(k):
                    if drawn[t, before] == pick:
                        pick = last
                        break
            drawn[t, k] = pick
    return drawn


@njit(cache=True)
def _least(peers, losses):
    """The first smallest usable loss of every target: whose it is, -1 for nobody's, and how
    large.
    """
    who, least = (
        np.full(peers.shape[0], -1, dtype=np.int64),
        np.full(peers.shape[0], np.inf),
    )
    for t in range(peers.shape[0]):
        for s in range(peers.shape[1]):
            if losses[t, s + 1] < least[t]:
                who[t], least[t] = peers[t, s], losses[t, s + 1]
    return who, least


@njit(cache=True)
def _fold(key, known, peers, losses, chosen, weights, n):
    """What is known with queued rounds added, in order: keys of pairs that met, and in rows asked,
    answered, reward, its square, adopted.
    """
    R, T, S = peers.shape
    most = min(T * n, key.shape[0] + R * T * (S + chosen.shape[2]))
    keys = np.empty(most, dtype=np.int64)
    sums = np.empty((5, most))
    # target by target: its sums then stay in the cache, and a pair still sees its rounds in order
    own = np.zeros((n, 5))
    count = 0
    at = 0
    for t in range(T):
        while at < key.shape[0] and key[at] < (t + 1) * n:
            for c in range(5):
                own[key[at] - t * n, c] = known[c][at]
            at += 1
        for r in range(R):
            for s in range(S):
                peer = peers[r, t, s]
                if peer >= 0:
                    own[peer, 0] += 1.0
                    if np.isfinite(losses[r, t, s + 1]):
                        reward = losses[r, t, 0] - losses[r, t, s + 1]
                        own[peer, 1] += 1.0
                        own[peer, 2] += reward
                        own[peer, 3] += reward * reward
            for c in range(chosen.shape[2]):
                if chosen[r, t, c] >= 0:
                    own[chosen[r, t, c], 4] += weights[r, t, c]
        for peer in range(n):
            if own[peer, 0] > 0 or own[peer, 4] > 0:
                keys[count] = t * n + peer
                for c in range(5):
                    sums[c, count] = own[peer, c]
                count += 1
            own[peer] = 0.0
    return keys[:count], sums[:, :count]


@njit(cache=True)
def _sound_peers(peers, targets, n):
    """Whether every entry names another device than the target, or nobody."""
    if peers.shape[0] != targets.shape[0]:
        return False
    for t in range(peers.shape[0]):
        for s in range(peers.shape[1]):
            if peers[t, s] < -1 or peers[t, s] >= n or peers[t, s] == targets[t]:
                return False
    return True


@njit(cache=True)
def _sound_choice(who, weights, stay, peers):
    """Whether weights are shares, and given only to peers that were asked."""
    if (
        who.shape[0] != peers.shape[0]
        or weights.shape != who.shape
        or stay.shape[0] != peers.shape[0]
    ):
        return False
    for t in range(who.shape[0]):
        total = stay[t]
        if not stay[t] >= 0.0:
            return False
        for k in range(who.shape[1]):
            if not weights[t, k] >= 0.0:
                return False
            total += weights[t, k]
            asked = who[t, k] == -1 and weights[t, k] == 0.0
            for s in range(peers.shape[1]):
                asked |= who[t, k] == peers[t, s] and who[t, k] >= 0
            if not asked:
                return False
        if not abs(total - 1.0) <= 1e-6:
            return False
    return True


@njit(cache=True)
def _grow(X, y, weight, max_depth, features, index, numbers):
    """Grow a regression tree; `index` takes feature, left, right and `numbers` threshold, value.
    Returns the number of nodes.

    Every feature's rows are sorted once; a node is a range of all these orders, and a split
    partitions them stably.
    """
    N, d = X.shape
    order = np.empty((d, N), dtype=np.int64)
    for f in range(d):
        order[f] = np.argsort(X[:, f])
    goes_left, spare = np.empty(N, dtype=np.bool_), np.empty(N, dtype=np.int64)
    todo = np.empty((index.shape[1], 4), dtype=np.int64)  # node, first, last, depth
    todo[0, 0], todo[0, 1], todo[0, 2], todo[0, 3] = 0, 0, N, 0
    waiting, nodes = 1, 1
    while waiting:
        waiting -= 1
        node, lo, hi, depth = (
            todo[waiting, 0],
            todo[waiting, 1],
            todo[waiting, 2],
            todo[waiting, 3],
        )
        mass, total, square = 0.0, 0.0, 0.0
        for i in range(lo, hi):
            r = order[0, i]
            mass += weight[r]
            total += weight[r] * y[r]
            square += weight[r] * y[r] * y[r]
        index[0, node], index[1, node], index[2, node] = -1, -1, -1
        numbers[0, node], numbers[1, node] = 0.0, total / mass
        if (
            depth >= max_depth
            or hi - lo < 2
            or square / mass - (total / mass) ** 2 <= 2.220446049250313e-16
        ):
            continue
        best, where, chosen = -np.inf, -1, -1
        for g in range(d):
            f = features[g]
            left_mass, left_total = 0.0, 0.0
            for i in range(lo, hi - 1):
                r = order[f, i]
                left_mass += weight[r]
                left_total += weight[r] * y[r]
                if X[order[f, i + 1], f] > X[r, f] + 1e-7:
                    score = left_total**2 / left_mass + (total - left_total) ** 2 / (
                        mass - left_mass
                    )
                    if score > best:
                        best, where, chosen = score, i, f
        if chosen < 0:
            continue
        below, above = (
            X[order[chosen, where], chosen],
            X[order[chosen, where + 1], chosen],
        )
        middle = below / 2.0 + above / 2.0
        index[0, node], index[1, node], index[2, node] = chosen, nodes, nodes + 1
        numbers[0, node] = middle if middle < above else below
        for i in range(lo, hi):
            goes_left[order[chosen, i]] = i <= where
        for f in range(d):
            a, b = lo, 0
            for i in range(lo, hi):
                r = order[f, i]
                if goes_left[r]:
                    order[f, a] = r
                    a += 1
                else:
                    spare[b] = r
                    b += 1
            for i in range(b):
                order[f, a + i] = spare[i]
        todo[waiting, 0], todo[waiting, 1], todo[waiting, 2], todo[waiting, 3] = (
            nodes + 1,
            where + 1,
            hi,
            depth + 1,
        )
        (
            todo[waiting + 1, 0],
            todo[waiting + 1, 1],
            todo[waiting + 1, 2],
            todo[waiting + 1, 3],
        ) = (
            nodes,
            lo,
            where + 1,
            depth + 1,
        )
        waiting += 2
        nodes += 2
    return nodes


@njit(cache=True)
def _walk(X, known, links, numbers, missing_left, sides_left, out):
    """Add up, row by row, the leaves that trees of the fleet lead it to; see `SharedTrees`.

    `links` are root-marked feature, left, right and sides of every node, `numbers` threshold and
    value. Returns whether every step stayed inside: trees may come from a folder.
    """
    feature, left, right, sides, root = links
    threshold, value = numbers
    nodes = feature.shape[0]
    columns = X.shape[1]
    bits = 32 * sides_left.shape[1]
    for i in range(X.shape[0]):
        total = 0.0
        category = known[i]
        if category >= bits:
            return False
        for t in range(root.shape[0]):
            at = root[t]
            steps = 0
            while True:
                if at < 0 or at >= nodes or steps > nodes:
                    return False
                f = feature[at]
                if f < 0:
                    break
                side = sides[at]
                if side >= sides_left.shape[0] or (side < 0 and f > columns):
                    return False
                if side >= 0:
                    goes = missing_left[at] != 0
                    if category >= 0:
                        word = sides_left[side, category // 32]
                        goes = (word >> np.uint32(category % 32)) & np.uint32(1) == 1
                else:
                    goes = X[i, max(f - 1, 0)] <= threshold[at]
                at = left[at] if goes else right[at]
                steps += 1
            total += value[at]
        out[i] = total
    return True


_vector, _matrix, _cube = (
    types.float64[::1],
    types.float64[:, ::1],
    types.float64[:, :, ::1],
)
_index, _pairs = types.int64[::1], types.int64[:, ::1]
_rows = (_matrix, _vector, _vector, _index, _vector)
_settings = (types.int64, types.float64, types.float64, types.float64, types.int64)
_signatures: dict[Any, Any] = {
    _linear_pairs: types.int64(
        *_rows, _pairs, *_rows, _index, _matrix, *_settings, _matrix, _matrix, _cube
    ),
    _sound_peers: types.boolean(_pairs, _index, types.int64),
    _sound_choice: types.boolean(_pairs, _matrix, _vector, _pairs),
    _grow: types.int64(_matrix, _vector, _vector, types.int64, _index, _pairs, _matrix),
    _fold: types.Tuple((_index, types.float64[:, :]))(
        _index,
        types.UniTuple(_vector, 5),
        types.int64[:, :, ::1],
        _cube,
        types.int64[:, :, ::1],
        _cube,
        types.int64,
    ),
    _distinct: _pairs(types.uint64, _index, _index, types.int64),
    _least: types.Tuple((_index, _vector))(_pairs, _matrix),
    _walk: types.boolean(
        _matrix,
        _index,
        types.UniTuple(_index, 5),
        types.UniTuple(_vector, 2),
        types.uint8[::1],
        types.uint32[:, ::1],
        _vector,
    ),
}

linear_pairs, distinct, fold, grow, least = (
    _linear_pairs,
    _distinct,
    _fold,
    _grow,
    _least,
)
sound_peers, sound_choice = _sound_peers, _sound_choice
walk = _walk


def place() -> Path:
    """The folder that compiled code is kept in."""
    return Path(next(iter(_signatures)).stats.cache_path)


def cached() -> bool:
    """Whether an earlier process left compiled code for every kernel."""
    return all(
        any(place().glob(f"_kernels.{kernel.__name__}-*.nbi")) for kernel in _signatures
    )


def build() -> None:
    """Compile (or load) every kernel for the one set of types it is called with."""
    for kernel, signature in _signatures.items():
        if not kernel.signatures:
            kernel.compile(signature.args)
            kernel.disable_compile()


def forget_cache() -> None:
    """Compile from now on without what is kept on disk, neither reading nor writing it."""
    for kernel in (*_signatures, _slope, _value, _weighted):
        kernel._cache = NullCache()
