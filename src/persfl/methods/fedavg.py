"""Federated averaging: one model for everybody.

w <- mean over participants of (`local` steps of theirs from w), weighted by their rows
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from persfl.checks import whole
from persfl.methods.method_fields import setting
from persfl.methods.shared_method import SharedMethod
from persfl.methods.shared_models import (
    all_devices,
    hold,
    mean_of_steps,
    participants,
    quiet_round,
)
from persfl.proposers.gradient import GradientStep
from persfl.seeds import stream
from persfl.trust import Trust
from persfl.types import Round

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet


def fedavg(
    fleet: InProcessFleet, *, rounds: int, share: float = 0.2, seed: int = 0
) -> Iterator[Round]:
    """Each round a share of the devices take the fleet's proposer's step from the common model;
    their answers are averaged.

    >>> from persfl import ArrayFleet, GradientStep, Linear
    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(n=20, clusters=1, rows=10, features=3)
    >>> fleet = ArrayFleet(devices, learner=Linear(), proposer=GradientStep(0.1))
    >>> *_, last = fedavg(fleet, rounds=100)
    >>> bool(last.loss.max() < 1e-3)
    True
    """
    devices = all_devices(fleet)
    learner = fleet.learner
    trust = Trust.blank(fleet)
    model = learner.init(devices[0], stream(seed, "shared"))
    for r in range(whole("rounds", rounds, least=0)):
        who = participants(fleet, share, r, seed)
        model = mean_of_steps(fleet, model, who, stream(seed, "answer", r))
        hold(fleet, np.broadcast_to(model, (len(fleet.targets), *model.shape)), r)
        yield quiet_round(fleet, r, trust)


@dataclass(frozen=True, kw_only=True)
class Averaging(SharedMethod):
    """Methods that begin with the common model of federated averaging."""

    local: int = setting(1, "own steps in a round, before answers are averaged")

    def steps_of(self, size: float) -> GradientStep:
        return GradientStep(size, steps=whole("local", self.local, least=1))

    def rounds_over(
        self, fleet: InProcessFleet, rounds: int, seed: int
    ) -> Iterator[Round]:
        return fedavg(fleet, rounds=rounds, share=self.share, seed=seed)


@dataclass(frozen=True)
class FedAvg(Averaging):
    """One model for everybody, by federated averaging."""

    name: ClassVar[str] = "fedavg"
    about: ClassVar[str] = "One model for everybody, the average of devices' steps"
    source: ClassVar[str] = "McMahan, Moore, Ramage, Hampson, Agueera y Arcas 2017"
    leaves: ClassVar[str] = (
        "Where its own steps of a round take the common model, and how many rows it has. Over a"
        " federation also its losses."
    )
