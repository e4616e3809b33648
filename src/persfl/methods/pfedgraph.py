"""pFedGraph: every device starts from a mean of models whose training went its own way.

w_i  own model after `local` steps from its start;   w_0 what everybody began with
d_ij = -cos(w_i - w_0, w_j - w_0), -1 where it is below -0.9
a_i  = argmin on the simplex of  sum_j d_ij a_j + alpha (a_j - p_j)^2
     = the projection of p - d_i / (2 alpha) onto the simplex;   p: shares of all rows
start of the next round: sum_j a_ij w_j

The authors' code adds 0.01 times the cosine between a model and its mean to the loss it minimizes,
which pushes them apart, where their paper pulls: it is left out here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from persfl.checks import real, whole
from persfl.methods.method_fields import setting
from persfl.methods.shared_method import SteppedMethod
from persfl.methods.shared_models import hold, quiet_round, start_of
from persfl.seeds import stream
from persfl.trust import Trust
from persfl.types import Array, Round

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet

ALIKE = 0.9  # a cosine above it counts as 1


def onto_simplex(points: Array) -> Array:
    """(n, K) the nearest points with entries of at least 0 that sum to 1.

    >>> onto_simplex(np.array([[0.2, 0.4], [3.0, 0.0]])).round(6).tolist()
    [[0.4, 0.6], [1.0, 0.0]]
    """
    size = points.shape[1]
    ordered = -np.sort(-points, axis=1)
    above = (np.cumsum(ordered, axis=1) - 1.0) / np.arange(1, size + 1)
    last = (ordered > above).sum(axis=1) - 1
    level = np.take_along_axis(above, last[:, None], axis=1)
    return np.maximum(points - level, 0.0)


def collaboration(moves: Array, rows: Array, alpha: float) -> Array:
    """(n, n) whose models each device's next start is a mean of, from moves (n, size)."""
    length = np.sqrt((moves**2).sum(axis=1, keepdims=True))
    along = moves / np.maximum(length, 1e-300)
    alike = along @ along.T
    alike = np.where(alike > ALIKE, 1.0, alike)
    np.fill_diagonal(alike, 1.0)
    share = rows / rows.sum() if rows.sum() > 0 else np.full(len(rows), 1 / len(rows))
    return onto_simplex(share + alike / (2.0 * alpha))


@dataclass(frozen=True)
class PFedGraph(SteppedMethod):
    """Own models, begun anew each round from a mean of those that moved alike."""

    name: ClassVar[str] = "pfedgraph"
    about: ClassVar[str] = "Own models, begun anew from a mean of those that move alike"
    source: ClassVar[str] = "Ye, Ni, Wu, Chen, Wang 2023"
    told: ClassVar[str] = "how evenly models are averaged"
    leaves: ClassVar[str] = (
        "Its own model, and how many rows it has. Over a federation where each of its steps"
        " leads, and its losses."
    )

    alpha: float = setting(0.8, "how evenly; a large one is federated averaging")
    local: int = setting(5, "own steps in a round")

    def rounds_over(
        self, fleet: InProcessFleet, rounds: int, seed: int
    ) -> Iterator[Round]:
        """Each round all targets train, and are given their mean to go on from."""
        alpha = real("alpha", self.alpha, above=0)
        local = whole("local", self.local, least=1)
        trust = Trust.blank(fleet)
        who = fleet.targets
        first = start_of(fleet, seed)
        own = np.repeat(first[None], len(who), axis=0)
        for r in range(rounds):
            for k in range(local):
                # by name: a step that goes far would take others along, and is left out
                own = fleet.stepped(own, who, stream(seed, "own", r, k).at(who))
            hold(fleet, own, r)
            yield quiet_round(fleet, r, trust)
            rows = fleet.home.static.total[who]
            own = collaboration(own - first, rows, alpha) @ own
