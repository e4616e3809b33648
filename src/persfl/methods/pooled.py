"""Pooling: what one model for everybody reaches when all rows are in one place. No federation
may do this; it is a yardstick.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from persfl.checks import whole
from persfl.errors import InputError
from persfl.evaluation.rivals import pooled_fit
from persfl.methods.method_fields import MethodSettings
from persfl.methods.protocol import Needs, Task
from persfl.methods.shared_models import fleet_rows, quiet_round
from persfl.methods.single_fit import at_once, for_everybody
from persfl.seeds import stream
from persfl.training.state import Keep, State
from persfl.trust import Trust
from persfl.types import Data, Round

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet


def pooled(fleet: InProcessFleet, *, rounds: int, seed: int = 0) -> Iterator[Round]:
    """Fit once to all rows; the same model in every round.

    >>> from persfl import ArrayFleet, GradientStep, Linear
    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(n=20, clusters=1, rows=10, features=3)
    >>> fleet = ArrayFleet(devices, learner=Linear(), proposer=GradientStep(0.1))
    >>> *_, last = pooled(fleet, rounds=1)
    >>> bool(last.loss.max() < 1e-20)
    True
    """
    devices = fleet_rows(fleet)
    learner = fleet.learner
    if isinstance(learner, (list, tuple)):
        raise InputError(
            "one model for everybody needs one learner for everybody. Got a learner per target."
        )
    model = learner.fit(
        Data(devices.X, devices.y, devices.weight), stream(seed, "shared")
    )
    fleet.models = [model] * len(fleet.targets)
    for r in range(whole("rounds", rounds, least=0)):
        yield quiet_round(fleet, r, Trust.blank(fleet))


@dataclass(frozen=True)
class Pooled(MethodSettings):
    """One model fitted to everybody's rows."""

    name: ClassVar[str] = "pooled"
    source: ClassVar[str] = "least squares of all rows, Legendre 1805; a yardstick"
    about: ClassVar[str] = "One model for everybody, fitted to all rows in one place"

    def needs(self) -> Needs:
        return Needs(together=True, leaves="All of its rows.")

    def run(
        self, task: Task, *, stage: str = "final", keep: Keep | None = None
    ) -> State:
        if not task.rows.total.sum() > 0:
            raise InputError("one model for everybody needs rows. Got none.")
        model = pooled_fit(task.learner, task.rows, task.seed)
        return at_once(task, for_everybody(model, task.n), stage=stage, keep=keep)
