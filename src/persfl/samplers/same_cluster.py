"""The oracle: somebody told the target who is of its kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from persfl.checks import whole
from persfl.errors import InputError
from persfl.seeds import distinct, stream
from persfl.trust import Trust
from persfl.types import IntArray


@dataclass(frozen=True, init=False)
class SameCluster:
    """`peers` different devices with the target's label.

    >>> SameCluster([0, 0, 0, 1, 1], 1)(Trust(5, np.array([0, 4])), 0, 0).tolist()
    [[2], [3]]
    """

    labels: tuple[int, ...]
    peers: int
    _codes: IntArray = field(repr=False, compare=False)
    # device indices, cluster after cluster
    _order: IntArray = field(repr=False, compare=False)
    # where each cluster begins in that order
    _start: IntArray = field(repr=False, compare=False)
    # where each device stands in that order
    _rank: IntArray = field(repr=False, compare=False)

    def __init__(self, labels: Sequence[int] | IntArray, peers: int = 1) -> None:
        kinds, codes = np.unique(np.asarray(labels), return_inverse=True)
        order = np.argsort(codes, kind="stable")
        object.__setattr__(self, "labels", tuple(codes.tolist()))
        object.__setattr__(self, "peers", peers)
        object.__setattr__(self, "_codes", codes)
        object.__setattr__(self, "_order", order)
        object.__setattr__(
            self, "_start", np.searchsorted(codes[order], np.arange(len(kinds) + 1))
        )
        rank = np.empty(len(codes), dtype=np.int64)
        rank[order] = np.arange(len(codes))
        object.__setattr__(self, "_rank", rank)

    def __call__(self, trust: Trust, r: int, seed: int) -> IntArray:
        codes = self._codes
        order = self._order
        start = self._start
        rank = self._rank
        if len(codes) != trust.n:
            raise InputError(
                f"labels must name a cluster for each of the {trust.n} devices. Got {len(codes)}"
                " labels."
            )
        targets = trust.targets
        first = start[codes[targets]]
        others = start[codes[targets] + 1] - first - 1
        fewest = int(others.min())
        size = whole(
            "peers",
            self.peers,
            least=1,
            most=fewest,
            why=f"a target has {fewest} others in its cluster",
        )
        picks = distinct(stream(seed, "sample", r), targets, others, size)
        own = (rank[targets] - first)[:, None]
        return np.ascontiguousarray(order[first[:, None] + picks + (picks >= own)])
