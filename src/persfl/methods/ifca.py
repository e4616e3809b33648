"""IFCA with gradient averaging: a fixed number of shared models, and every device picks the one
that fits it best.

j_i = argmin_j L_i(w_j);   w_j <- mean over participants with j_i = j of (their steps from w_j)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from persfl.checks import many, whole
from persfl.methods.method_fields import setting
from persfl.methods.shared_method import SharedMethod
from persfl.methods.shared_models import (
    all_devices,
    hold,
    participants,
    quiet_round,
)
from persfl.seeds import stream
from persfl.trust import Trust
from persfl.types import Array, Restarting, Round

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet


def ifca(
    fleet: InProcessFleet, *, told: int, rounds: int, share: float = 0.2, seed: int = 0
) -> Iterator[Round]:
    """`told` is the number of clusters the method is told. A target's model is the one it would
    pick.

    Models must start apart: from N(0, I), or where the learner has other starts of its own (a
    Network), from those.

    >>> from persfl import ArrayFleet, GradientStep, Linear
    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(n=40, clusters=2, rows=10, features=5, seed=0)
    >>> fleet = ArrayFleet(
    ...     devices, learner=Linear(), proposer=GradientStep(0.05), targets=[0]
    ... )
    >>> for round_ in ifca(fleet, told=2, rounds=300):
    ...     pass
    >>> bool(round_.loss[0] < 1e-6)
    True
    """
    learner = fleet.learner
    trust = Trust.blank(fleet)
    models = starts_apart(fleet, whole("told", told, least=1), seed)
    for r in range(whole("rounds", rounds, least=0)):
        who = participants(fleet, share, r, seed)
        pick = fleet.scored(models, who).argmin(axis=1)
        answers = fleet.stepped(models[pick], who, stream(seed, "answer", r).at(who))
        for j in np.unique(pick):
            mine = answers[pick == j]
            models[j] = learner.mix(mine, np.full(len(mine), 1.0 / len(mine)))
        hold(fleet, models[fleet.scored(models).argmin(axis=1)], r)
        yield quiet_round(fleet, r, trust)


def starts_apart(fleet: InProcessFleet, told: int, seed: int) -> Array:
    """(told, size) models that differ: the learner's own other starts, or N(0, I)."""
    first = all_devices(fleet)[0]
    place = stream(seed, "ifca")
    learner = fleet.learner
    if isinstance(learner, Restarting):
        return np.stack([learner.fresh(first, place.at(j)) for j in range(told)])
    start = learner.init(first, stream(seed, "shared"))
    return np.asarray(place.generator().standard_normal((told, *start.shape)))


@dataclass(frozen=True)
class IFCA(SharedMethod):
    """A fixed number of shared models; every device takes the one that fits it best."""

    name: ClassVar[str] = "ifca"
    about: ClassVar[str] = "One model per cluster, where devices choose their cluster"
    source: ClassVar[str] = "Ghosh, Chung, Yin, Ramchandran 2020"
    told: ClassVar[str] = "the number of clusters"
    leaves: ClassVar[str] = (
        "Which common model fits it best, and where a step on its rows takes that. Over a"
        " federation its losses of all common models."
    )

    clusters: int = setting(2, "how many clusters there are")

    def rounds_over(
        self, fleet: InProcessFleet, rounds: int, seed: int
    ) -> Iterator[Round]:
        n = fleet.n
        why = many(n, "device")
        told = whole("clusters", self.clusters, least=1, most=n, why=why)
        return ifca(fleet, told=told, rounds=rounds, share=self.share, seed=seed)
