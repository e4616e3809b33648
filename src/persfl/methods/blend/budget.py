"""A stated budget of questions, and how it is spent.

One question is one answer that one other device computes for one asker. A refit (with one number:
how noisy the rows are about it) costs 1, an answer by gradient steps a quarter. What the fleet is
like is asked once for a whole group of targets: each device asked answers once, and each target
bears its part, answers over targets. That may take half of the budget; where it would take more,
fewer devices are asked, and nobody where not even two could be. The rest is for neighbours.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from persfl.methods.blend.site import Part
from persfl.seeds import distinct, stream
from persfl.types import IntArray

ASKED = 400  # devices at most: their mean is known well enough
SHORTER = 4  # questions about steps that cost as much as one refit


def asked_of(part: Part, each: float) -> tuple[IntArray, float]:
    """Which peers tell what the fleet is like, at `each` questions per peer; what is left of
    the budget for each copy.
    """
    many = affordable(part.budget, part.targets, min(part.peers, ASKED), each)
    left = part.budget - each * many / part.targets
    return some_of(part.peers, many, stream(part.seed, "asked")), left / part.copies


def affordable(budget: float, targets: int, peers: int, each: float) -> int:
    """How many of these peers can be asked for what the fleet is like.

    `budget` is that of each of the targets, who share what it costs: `each` questions per peer.

    >>> (
    ...     affordable(640, 6, 40, 14.5),
    ...     affordable(40, 6, 40, 14.5),
    ...     affordable(1, 6, 40, 14.5),
    ... )
    (40, 8, 0)
    """
    many = min(peers, int(budget / 2 * targets / each))
    return many if many >= min(2, peers) else 0


def some_of(peers: int, many: int, place: Any) -> IntArray:
    """So many of the peers, drawn at this place; in order."""
    if many >= peers:
        return np.arange(peers)
    if not many:
        return np.empty(0, dtype=np.int64)
    return np.sort(
        distinct(place, np.zeros(1, dtype=np.int64), np.array([peers]), many)[0]
    )
