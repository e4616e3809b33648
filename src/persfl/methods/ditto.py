"""Ditto: every device trains a model of its own that is pulled toward the model of federated
averaging.

w   <- mean over participants of (their steps from w), weighted by their rows
v_i <- v_i - step_size * (grad L_i(v_i) + pull * (v_i - w))

`pull` is Ditto's lambda: with 0 every device trains alone, with a large one all follow the average.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from persfl.checks import real, whole
from persfl.errors import InputError
from persfl.methods.method_fields import setting
from persfl.methods.protocol import Task
from persfl.methods.shared_method import SharedMethod
from persfl.methods.shared_models import (
    all_devices,
    hold,
    mean_of_steps,
    participants,
    quiet_round,
    step_length,
)
from persfl.seeds import stream
from persfl.trust import Trust
from persfl.types import Round

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet


def ditto(
    fleet: InProcessFleet,
    *,
    pull: float,
    rounds: int,
    share: float = 0.2,
    seed: int = 0,
) -> Iterator[Round]:
    """Each round every target takes the fleet's step on its own rows, pulled toward the average as
    it stood before the round.

    >>> from persfl import ArrayFleet, GradientStep, Linear
    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(
    ...     n=40, clusters=1, rows=3, features=5, deviation=0.1, seed=0
    ... )
    >>> fleet = ArrayFleet(devices, learner=Linear(), proposer=GradientStep(0.05))
    >>> for pull in (0.0, 1.0):
    ...     for round_ in ditto(fleet, pull=pull, rounds=300):
    ...         pass
    ...     print(
    ...         round(
    ...             ((fleet.models - devices.true_weights) ** 2).sum(axis=1).mean(), 2
    ...         )
    ...     )
    14.8
    0.03
    """
    devices = all_devices(fleet)
    learner = fleet.learner
    trust = Trust.blank(fleet)
    step = step_length(fleet, "Ditto")
    if step * real("pull", pull, least=0) >= 1:
        raise InputError(
            f"step_size * pull must be below 1, or the pull overshoots. Got {step:g} * {pull:g}."
        )
    model = learner.init(devices[0], stream(seed, "shared"))
    own = np.repeat(model[None], len(fleet.targets), axis=0)
    for r in range(whole("rounds", rounds, least=0)):
        moved = fleet.stepped(own, None, stream(seed, "own", r).at(fleet.targets))
        own = moved - step * pull * (own - model)
        model = mean_of_steps(
            fleet, model, participants(fleet, share, r, seed), stream(seed, "answer", r)
        )
        hold(fleet, own, r)
        yield quiet_round(fleet, r, trust)


@dataclass(frozen=True)
class Ditto(SharedMethod):
    """A model of its own for every device, pulled toward the average of all."""

    name: ClassVar[str] = "ditto"
    about: ClassVar[str] = "Own models, pulled toward the one of federated averaging"
    source: ClassVar[str] = "Li, Hu, Beirami, Smith 2021"
    leaves: ClassVar[str] = (
        "Where a step on its rows takes the common model, and how many rows it has. Over a"
        " federation also its losses, and where a step takes its own model."
    )
    told: ClassVar[str] = "how strongly own models are pulled toward the average"

    pull: float = setting(0.1, "how strongly; 0 is every device alone")

    def first_step(self, task: Task) -> float:
        """A longer step would overshoot the average."""
        step = super().first_step(task)
        return min(step, 0.5 / self.pull) if self.pull > 0 else step

    def rounds_over(
        self, fleet: InProcessFleet, rounds: int, seed: int
    ) -> Iterator[Round]:
        return ditto(fleet, pull=self.pull, rounds=rounds, share=self.share, seed=seed)
