"""A stated budget of questions, and how it is spent.

What the fleet is like is asked once for a whole group of targets, and each of them bears its part. That may take half of the
budget; where it would take more, fewer devices are asked. The rest is for neighbours.
"""

from __future__ import annotations

import numpy as np

from persfl.blending.homes import Part
from persfl.seeds import distinct, stream
from persfl.types import IntArray

ASKED = 400  # devices at most: their mean is known well enough
SHORTER = 4  # questions about steps that cost as much as one refit


def asked_of(part: Part, each: float) -> tuple[IntArray, float]:
    """Which peers tell what the fleet is like, at `each` questions per peer; what is left of the budget for each copy."""
    most = max(2, int(part.budget / 2 * part.targets / each))
    many = min(part.peers, ASKED, most)
    if many == part.peers:
        who = np.arange(part.peers)
    else:
        who = np.sort(distinct(stream(part.seed, "asked"), np.zeros(1, dtype=np.int64), np.array([part.peers]), many)[0])
    return who, max(0.0, part.budget - each * many / part.targets) / part.copies
