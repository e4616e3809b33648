"""Federated averaging, then fine-tuning: one model for everybody, with which every device goes on
alone.

in the first rounds     w   <- mean over participants of (`local` steps of theirs from w),
                               weighted by their rows
in the last `alone`     v_i <- v_i - step_size * grad L_i(v_i),  from v_i = w
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from persfl.checks import whole
from persfl.evaluation.rivals import tuned_fits
from persfl.methods.fedavg import Averaging, fedavg
from persfl.methods.protocol import Needs, Task
from persfl.methods.shared_models import all_devices, hold, quiet_round
from persfl.proposers.gradient import GradientStep
from persfl.seeds import stream
from persfl.training.state import Keep, State
from persfl.trust import Trust
from persfl.types import Round

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet


def finetuned(
    fleet: InProcessFleet, *, alone: int, rounds: int, share: float = 0.2, seed: int = 0
) -> Iterator[Round]:
    """FedAvg for `rounds - alone` rounds; in each of the last `alone` every target takes the
    fleet's step on its own rows.

    With `alone=rounds` every device trains alone from the common start.

    >>> from persfl import ArrayFleet, GradientStep, Linear
    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(
    ...     n=40, clusters=1, rows=10, features=5, deviation=0.5, seed=0
    ... )
    >>> fleet = ArrayFleet(devices, learner=Linear(), proposer=GradientStep(0.05))
    >>> for alone in (0, 20):
    ...     for round_ in finetuned(fleet, alone=alone, rounds=120):
    ...         pass
    ...     print(
    ...         round(
    ...             ((fleet.models - devices.true_weights) ** 2).sum(axis=1).mean(), 2
    ...         )
    ...     )
    1.47
    0.27
    """
    whole(
        "alone",
        alone,
        least=0,
        most=whole("rounds", rounds, least=0),
        why=f"{rounds} rounds",
    )
    yield from fedavg(fleet, rounds=rounds - alone, share=share, seed=seed)
    trust = Trust.blank(fleet)
    if rounds == alone:
        model = fleet.learner.init(all_devices(fleet)[0], stream(seed, "shared"))
        fleet.models = np.repeat(model[None], len(fleet.targets), axis=0)
    for r in range(rounds - alone, rounds):
        hold(
            fleet,
            fleet.stepped(
                np.asarray(fleet.models), None, stream(seed, "own", r).at(fleet.targets)
            ),
            r,
        )
        yield quiet_round(fleet, r, trust)


@dataclass(frozen=True)
class FedAvgFineTuned(Averaging):
    """One model by federated averaging, which every device then refits to its own rows."""

    name: ClassVar[str] = "fedavg+fine-tuning"
    about: ClassVar[str] = "Federated averaging, then refitted to own rows"
    source: ClassVar[str] = "McMahan et al. 2017; fine-tuning, Wang et al. 2019"

    def needs(self) -> Needs:
        own = "A federation does not ask devices to refit a common model to their rows."
        return replace(super().needs(), not_federated=own)

    def run(
        self, task: Task, *, stage: str = "final", keep: Keep | None = None
    ) -> State:
        state = super().run(task, stage=stage, keep=keep)
        steps = GradientStep(self.first_step(task), steps=state.r)
        model = np.asarray(state.models)[0]
        tuned = tuned_fits(
            task.learner, task.rows, model, task.public, steps, task.seed
        )
        return replace(state, models=np.asarray(tuned))
