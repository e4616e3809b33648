"""CFL: one model for everybody, until devices pull in different directions: then clusters split.

dW_i = (where the step of device i takes its cluster's model) - that model
w_c  <- w_c + mean of dW_i over cluster c

A cluster splits in two (complete linkage on 1 - cos(dW_i, dW_j)) once its mean stands nearly still,
||mean dW|| < still * s, while somebody still pulls, max ||dW|| > pulls * s, with more than two
members and after 20 rounds. s is the mean ||dW|| of the first round: the authors' 0.4 and 1.6 are
tied to the scale of their gradients. After a split members are numbered among all devices; the
authors' code numbers them within the cluster, so that later splits mix up devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage

from persfl.checks import real, whole
from persfl.methods.method_fields import setting
from persfl.methods.shared_method import SteppedMethod
from persfl.methods.shared_models import hold, quiet_round, start_of
from persfl.seeds import stream
from persfl.trust import Trust
from persfl.types import Array, IntArray, Round

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet


def halves(steps: Array, members: IntArray) -> tuple[IntArray, IntArray]:
    """Two parts of `members`, by the directions of all devices' steps (devices, size).

    >>> steps = np.array([[1.0, 0.0], [0.0, 9.0], [2.0, 0.1], [-1.0, 0.0], [-2.0, 0.2]])
    >>> [part.tolist() for part in halves(steps, np.array([0, 2, 3, 4]))]
    [[0, 2], [3, 4]]
    """
    mine = steps[members]
    length = np.sqrt((mine**2).sum(axis=1, keepdims=True))
    along = mine / np.maximum(length, 1e-300)
    apart = np.clip(1.0 - along @ along.T, 0.0, 2.0)
    upper = apart[np.triu_indices(len(members), 1)]
    side = fcluster(linkage(upper, "complete"), 2, "maxclust")
    return members[side == side[0]], members[side != side[0]]


@dataclass(frozen=True)
class CFL(SteppedMethod):
    """One model per cluster; clusters split where devices pull apart."""

    name: ClassVar[str] = "cfl"
    about: ClassVar[str] = (
        "One model per cluster; clusters split where devices pull apart"
    )
    source: ClassVar[str] = "Sattler, Mueller, Samek 2020"
    told: ClassVar[str] = "when a cluster stands still, and what counts as pulling"
    leaves: ClassVar[str] = (
        "Where a step on its rows takes its cluster's model. Over a federation also its losses."
    )

    still: float = setting(
        0.1, "a mean step below this share of the first ones is none"
    )
    pulls: float = setting(0.4, "a step above this share of the first ones pulls")
    after: int = setting(20, "rounds before the first split")

    def rounds_over(
        self, fleet: InProcessFleet, rounds: int, seed: int
    ) -> Iterator[Round]:
        """Each round all devices step from the models of their clusters."""
        still = real("still", self.still, above=0)
        pulls = real("pulls", self.pulls, above=0)
        after = whole("after", self.after, least=0)
        trust = Trust.blank(fleet)
        who = np.arange(fleet.n)
        models = np.repeat(start_of(fleet, seed)[None], fleet.n, axis=0)
        clusters = [who]
        first = 0.0
        for r in range(rounds):
            moved = fleet.stepped(models, who, stream(seed, "answer", r).at(who))
            steps = moved - models
            lengths = np.sqrt((steps**2).sum(axis=1))
            first = first or float(lengths.mean())
            found: list[IntArray] = []
            for members in clusters:
                mean = steps[members].mean(axis=0)
                slow = np.sqrt((mean**2).sum()) < still * first
                pulled = lengths[members].max() > pulls * first
                if len(members) > 2 and r >= after and slow and pulled:
                    found += halves(steps, members)
                else:
                    found.append(members)
            clusters = found
            for members in clusters:
                models[members] += steps[members].mean(axis=0)
            hold(fleet, models[fleet.targets], r)
            yield quiet_round(fleet, r, trust)
