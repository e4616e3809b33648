"""Federated averaging: one model for everybody.

w <- mean over participants of (their steps from w), weighted by their rows
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from persfl.checks import whole
from persfl.fleets.in_process import InProcessFleet
from persfl.methods.method_fields import MethodSettings, setting
from persfl.methods.protocol import Needs, Task
from persfl.methods.shared_models import (
    COMMON,
    all_devices,
    averaged,
    descend,
    hold,
    participants,
    quiet_round,
)
from persfl.seeds import stream
from persfl.training import Keep, State, rounds_for, step_of
from persfl.trust import Trust
from persfl.types import Round

LEAVES = "Where a step on its rows takes the common model, and how many rows it has."


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
    devices, learner, trust = all_devices(fleet), fleet.learner, Trust.blank(fleet)
    model = learner.init(devices[0], stream(seed, "shared"))
    for r in range(whole("rounds", rounds, least=0)):
        who = participants(fleet, share, r, seed)
        model = averaged(fleet, model, who, stream(seed, "answer", r))
        hold(fleet, np.repeat(model[None], len(fleet.targets), axis=0), r)
        yield quiet_round(fleet, r, trust)


@dataclass(frozen=True)
class FedAvg(MethodSettings):
    """One model for everybody, by federated averaging."""

    name: ClassVar[str] = "fedavg"
    about: ClassVar[str] = "One model for everybody, the average of devices' steps"

    rounds: int | str = setting("auto", "rounds of averaging; auto: 100")
    share: float = setting(0.2, "the share of the devices that take part in a round")
    step_size: float | str = setting("auto", "the first step; halved if losses grow")

    def needs(self) -> Needs:
        return Needs(gradients=True, mixes=True, not_federated=COMMON, leaves=LEAVES)

    def run(
        self, task: Task, *, stage: str = "final", keep: Keep | None = None
    ) -> State:
        rounds = rounds_for(self.rounds, task.learner)
        return descend(
            task,
            lambda fleet: fedavg(
                fleet, rounds=rounds, share=self.share, seed=task.seed
            ),
            rounds=rounds,
            step_size=step_of(self.step_size, task.learner, task.features),
            stage=stage,
            keep=keep,
        )
