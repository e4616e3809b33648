"""Federated averaging: one model for everybody.

w <- mean over participants of (their steps from w), weighted by their rows
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from persfl.baselines.shared import (
    all_devices,
    averaged,
    hold,
    participants,
    quiet_round,
)
from persfl.checks import whole
from persfl.fleets.array_fleet import ArrayFleet
from persfl.seeds import stream
from persfl.trust import Trust
from persfl.types import Round


def fedavg(
    fleet: ArrayFleet, *, rounds: int, share: float = 0.2, seed: int = 0
) -> Iterator[Round]:
    """Each round a share of the devices take the fleet's proposer's step from the common model;
    their answers are averaged.

    >>> from persfl import GradientStep, Linear
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
