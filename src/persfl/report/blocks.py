"""An order for the heat map in which devices that take from the same peers stand together, and
where to draw lines.

Devices are alike if their rows of the share matrix are (cosine, both directions, themselves
included). A tree of average linkage gives the order; it is cut where the shares within blocks most
exceed what chance would put there (modularity), and only if that exceeds what the same cut finds in
shuffled shares. Above 150 devices, similar ones are first put into one cell together.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from persfl.seeds import stream

if TYPE_CHECKING:
    from persfl.trust import Trust
    from persfl.types import Array, IntArray

CELLS = 150
MOST_BLOCKS = 8


class Blocks(NamedTuple):
    """`cells`: devices of each row of the heat map, in order; `values` (cells, cells);
    `starts`: where blocks begin and end.
    """

    cells: list[IntArray]
    values: Array
    starts: list[int]
    block: IntArray  # per device
    member: IntArray  # the row of the heat map that a device is in

    def undivided(self) -> Blocks:
        """In the order of the table, without lines: where there are no kinds, nothing must look
        as if there were.
        """
        order = np.argsort([int(cell.min()) for cell in self.cells], kind="stable")
        row = np.empty(len(order), dtype=np.int64)
        row[order] = np.arange(len(order))
        return Blocks(
            [self.cells[k] for k in order.tolist()],
            self.values[np.ix_(order, order)],
            [0, len(self.cells)],
            np.zeros_like(self.block),
            row[self.member],
        )

    def never(self, met: csr_array) -> list[list[int]]:
        """Of each row of the heat map, the columns none of whose devices it ever asked."""
        n = len(self.member)
        shape = (n, len(self.cells))
        gather = csr_array((np.ones(n), (np.arange(n), self.member)), shape=shape)
        asked = np.asarray((gather.T @ met @ gather).todense())
        return [np.flatnonzero(row == 0).tolist() for row in asked]


def adoption_shares(trust: Trust) -> csr_array:
    """(n, n) how much of each target's adopted steps came from each peer; rows sum to 1, or to
    0.
    """
    pairs = trust.pairs
    position, peer = np.divmod(pairs.key, trust.n)
    total = np.bincount(position, weights=pairs.adopted, minlength=len(trust.targets))
    used = pairs.adopted > 0
    value = pairs.adopted[used] / total[position[used]]
    return csr_array(
        (value, (trust.targets[position[used]], peer[used])), shape=(trust.n, trust.n)
    )


def pairs_met(trust: Trust) -> csr_array:
    """(n, n) 1 where a target ever asked a peer."""
    position, peer = np.divmod(trust.pairs.key, trust.n)
    ones = np.ones(len(peer))
    return csr_array((ones, (trust.targets[position], peer)), shape=(trust.n, trust.n))


def blocks(matrix: csr_array, *, cells: int = CELLS, seed: int = 0) -> Blocks:
    """Order and cut.

    >>> two = csr_array(np.kron(np.eye(2), np.ones((4, 4)) / 4))
    >>> found = blocks(two)
    >>> found.starts, found.block.tolist()
    ([0, 4, 8], [0, 0, 0, 0, 1, 1, 1, 1])
    """
    n = matrix.shape[0]
    member = np.arange(n) if n <= cells else _gathered(matrix, cells, seed)
    count = int(member.max()) + 1
    sizes = np.bincount(member, minlength=count)
    gather = csr_array((np.ones(n), (np.arange(n), member)), shape=(n, count))
    sums = np.asarray((gather.T @ matrix @ gather).todense())
    values = sums / np.maximum(sizes, 1)[:, None]
    if count < 3:
        order = np.arange(count)
        cut = np.zeros(count, dtype=np.int64)
    else:
        order, cut = _ordered(sums, seed)
    starts = [0, *(np.flatnonzero(np.diff(cut[order])) + 1).tolist(), count]
    block = np.empty(count, dtype=np.int64)
    for k, (lo, hi) in enumerate(pairwise(starts)):
        block[order[lo:hi]] = k
    inside = [np.flatnonzero(member == c) for c in order]
    row = np.empty(count, dtype=np.int64)
    row[order] = np.arange(count)
    drawn = values[np.ix_(order, order)]
    return Blocks(inside, drawn, starts, block[member], row[member])


def _gathered(matrix: csr_array, cells: int, seed: int) -> IntArray:
    """Which cell each device belongs to."""
    from sklearn.cluster import KMeans
    from sklearn.decomposition import TruncatedSVD

    both = matrix + matrix.T
    number = stream(seed, "cells").integer() % 2**31
    places = TruncatedSVD(16, random_state=number).fit_transform(both)
    length = np.linalg.norm(places, axis=1, keepdims=True)
    found = KMeans(cells, n_init=1, random_state=number).fit_predict(
        places / np.where(length > 0, length, 1.0)
    )
    return np.unique(found, return_inverse=True)[1]


def _ordered(sums: Array, seed: int) -> tuple[IntArray, IntArray]:
    from scipy.cluster.hierarchy import fcluster, leaves_list

    both = sums + sums.T
    np.fill_diagonal(both, 0.0)
    count = len(both)
    tree = _tree(both)
    order = leaves_list(tree)
    generator = stream(seed, "shuffled").generator()
    shuffled = np.zeros_like(sums)
    for i, row in enumerate(sums):
        others = np.flatnonzero(np.arange(count) != i)
        shuffled[i, generator.permutation(others)] = row[others]
    noise = shuffled + shuffled.T
    chance = _tree(noise)
    best = 0.0
    cut = np.zeros(count, dtype=np.int64)
    for k in range(2, min(MOST_BLOCKS, count // 3) + 1):
        labels = fcluster(tree, k, criterion="maxclust")
        by_luck = _modularity(noise, fcluster(chance, k, criterion="maxclust"))
        strength = _modularity(both, labels) - 1.5 * max(0.0, by_luck)
        if strength > best + 1e-9 and np.bincount(labels)[1:].min() >= 2:
            best = strength
            cut = labels
    return order, cut


def _tree(both: Array) -> Array:
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import pdist

    # a device is like itself
    near = both + np.diag(np.maximum(both.max(axis=1), 1e-12))
    apart = np.maximum(pdist(near, "cosine"), 0.0)
    return np.asarray(linkage(apart, "average", optimal_ordering=len(both) <= 500))


def _modularity(both: Array, labels: IntArray) -> float:
    total = both.sum()
    if total <= 0:
        return 0.0
    same = labels[:, None] == labels[None, :]
    degree = both.sum(axis=1)
    by_chance = np.outer(degree, degree)[same].sum() / total
    return float((both[same].sum() - by_chance) / total)
