"""Whoever is like me is like those who are like me: pairs are judged by what third devices say.

A pair's own evidence is a few rows, and some pairs of a large fleet look alike by luck. Luck is not
shared: if i and j are of one kind, the devices c that are surely like i are like j too.

    chance_ij = mean over c of v_cj, each c by how sure it is to be like i: (2 v_ic - 1)^2

The mean counts one more device that says nothing, and the lower of both directions is taken. Where
nobody is surely like i, nothing can be told of i.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from persfl.types import Array, IntArray, Mask

if TYPE_CHECKING:
    from scipy.sparse import csr_array

NOTHING = 0.5  # the chance of which nothing is known
AT_ONCE = 2**22  # pairs that are worked on together, at most


def by_common_friends(target: IntArray, peer: IntArray, chance: Array) -> Array:
    """(pairs,) chances that `target` and `peer` are alike, from those of every pair that met.

    >>> kind = np.arange(20) % 2
    >>> target, peer = np.nonzero(~np.eye(20, dtype=bool))
    >>> chance = np.where(kind[target] == kind[peer], 0.99, 0.01)
    >>> chance[(target == 0) & (peer == 1)] = 0.95  # by luck
    >>> found = by_common_friends(target, peer, chance)
    >>> bool(found[kind[target] == kind[peer]].min() > 0.8)
    True
    >>> bool(found[kind[target] != kind[peer]].max() < 0.5)
    True
    """
    if not len(target):
        return np.zeros(0)
    n = int(max(target.max(), peer.max())) + 1
    sure = np.maximum(2.0 * chance - 1.0, 0.0) ** 2
    of_mine = _matrix(target, peer, sure, n)
    theirs = _matrix(target, peer, chance, n)
    met = _matrix(target, peer, np.ones(len(target)), n)
    found = np.empty(len(target))
    rows = max(1, AT_ONCE // n)
    for first in range(0, n, rows):
        here = np.flatnonzero((target >= first) & (target < first + rows))
        if len(here):
            at = target[here] - first, peer[here]
            friends = of_mine[first : first + rows]
            say = np.asarray((friends @ theirs).todense())[at]
            among = np.asarray((friends @ met).todense())[at]
            found[here] = (say + NOTHING) / (among + 1.0)
    other, both = other_way(target, peer, found)
    found = np.where(both, np.minimum(found, other), found)
    return np.asarray(np.clip(found, 0.0, 1.0))


def _matrix(target: IntArray, peer: IntArray, values: Array, n: int) -> csr_array:
    from scipy.sparse import csr_array

    return csr_array((values, (target, peer)), shape=(n, n))


def other_way(
    target: IntArray, peer: IntArray, values: NDArray[Any]
) -> tuple[NDArray[Any], Mask]:
    """(pairs,) the value of the pair the other way round, and whether there is such a pair.

    >>> value, there = other_way(np.array([0, 1]), np.array([1, 0]), np.array([5, 7]))
    >>> value.tolist(), there.tolist()
    ([7, 5], [True, True])
    """
    n = int(max(target.max(), peer.max())) + 1
    there = target.astype(np.int64) * n + peer
    order = np.argsort(there)
    back = peer.astype(np.int64) * n + target
    at = np.minimum(np.searchsorted(there[order], back), len(there) - 1)
    return values[order][at], there[order][at] == back
