"""IFCA with gradient averaging: a fixed number of shared models, and every device picks the one that fits it best.

j_i = argmin_j L_i(w_j);   w_j <- mean over participants with j_i = j of (their steps from w_j)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from persfl.baselines.shared import all_devices, participants, quiet_round
from persfl.checks import whole
from persfl.fleets.array import ArrayFleet
from persfl.seeds import stream
from persfl.trust import Trust
from persfl.types import Round


def ifca(fleet: ArrayFleet, *, told: int, rounds: int, share: float = 0.2, seed: int = 0) -> Iterator[Round]:
    """`told` is the number of clusters the method is told; models start from N(0, I). A target's model is the one it would pick.

    >>> from persfl import GradientStep, Linear
    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(n=40, clusters=2, rows=10, features=5, seed=0)
    >>> fleet = ArrayFleet(devices, learner=Linear(), proposer=GradientStep(0.05), targets=[0])
    >>> for round_ in ifca(fleet, told=2, rounds=300): pass
    >>> bool(round_.loss[0] < 1e-6)
    True
    """
    devices, learner, proposer, trust = all_devices(fleet), fleet.learner, fleet.proposer, Trust.blank(fleet)
    blank = learner.init(devices[0], stream(seed, "shared"))
    models = stream(seed, "ifca").generator().standard_normal((whole("told", told, least=1), *blank.shape))
    own = fleet.home.scoring.batch(slice(None))
    own = type(own)(own.X[:, None], own.y[:, None], own.weight[:, None])
    for r in range(whole("rounds", rounds, least=0)):
        who = participants(fleet, share, r, seed)
        data = devices.gather(who)
        each = type(data)(data.X[:, None], data.y[:, None], data.weight[:, None])
        pick = learner.loss(models[None], each).argmin(axis=1)
        answers = proposer.answer(learner, proposer.ask(learner, models[pick]), data, stream(seed, "answer", r).at(who))
        for j in np.unique(pick):
            mine = answers[pick == j]
            models[j] = learner.mix(mine, np.full(len(mine), 1.0 / len(mine)))
        fleet.models = models[learner.loss(models[None], own).argmin(axis=1)]
        yield quiet_round(fleet, r, trust)
