"""The paper's sampler: a few peers, each set of them equally likely."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from persfl.checks import whole
from persfl.seeds import distinct, stream
from persfl.trust import Trust
from persfl.types import IntArray


@dataclass(frozen=True)
class Uniform:
    """`peers` different devices, never the target; whom a target asks does not depend on which
    other targets there are.

    >>> Uniform(3)(Trust(5, np.array([0, 4])), 0, 0).tolist()
    [[2, 3, 4], [0, 1, 3]]
    >>> Uniform(3)(Trust(5, np.array([4])), 0, 0).tolist()
    [[0, 1, 3]]
    """

    peers: int = 20

    def __call__(self, trust: Trust, r: int, seed: int) -> IntArray:
        size = self.peers
        targets = trust.targets
        if type(size) is not int or not 0 < size < trust.n:
            size = whole(
                "peers", size, least=1, most=trust.n - 1, why=f"{trust.n} devices"
            )
        picks = distinct(
            stream(seed, "sample", r), targets, np.array([trust.n - 1]), size
        )
        picks += picks >= targets[:, None]
        return picks
