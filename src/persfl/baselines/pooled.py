"""Pooling: what one model for everybody reaches when all rows are in one place. No federation
may do this; it is a yardstick.
"""

from __future__ import annotations

from collections.abc import Iterator

from persfl.baselines.shared import all_rows, quiet_round
from persfl.checks import whole
from persfl.errors import InputError
from persfl.fleets.array_fleet import ArrayFleet
from persfl.seeds import stream
from persfl.trust import Trust
from persfl.types import Data, Round


def pooled(fleet: ArrayFleet, *, rounds: int, seed: int = 0) -> Iterator[Round]:
    """Fit once to all rows; the same model in every round.

    >>> from persfl import GradientStep, Linear
    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(n=20, clusters=1, rows=10, features=3)
    >>> fleet = ArrayFleet(devices, learner=Linear(), proposer=GradientStep(0.1))
    >>> *_, last = pooled(fleet, rounds=1)
    >>> bool(last.loss.max() < 1e-20)
    True
    """
    devices, learner = all_rows(fleet), fleet.learner
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
