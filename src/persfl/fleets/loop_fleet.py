"""The reference fleet: one pair after the other, any learner."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from persfl.fleets.in_process import InProcessFleet
from persfl.fleets.pairwise import Pairwise

if TYPE_CHECKING:
    from persfl.fleets.engine import Engine, EngineTask
    from persfl.types import Learner, Model, Models, Proposer


class LoopFleet(InProcessFleet):
    """Devices in this process, asked one by one.

    `devices`: what `Devices.of` takes, or a source (see `persfl.sources`). `learner`: one, or a
    list of one per target: a peer answers in the asker's family. `targets`: device ids (default:
    all). `start`: None (zeros for `Linear`, the own fit for `Estimator`), "zeros", "own", a model,
    or one per target. `holdout`: the share of a target's rows it scores by (0: all of them); the
    rest are what `local`, a proposer, trains on once a round. `n_jobs`: parallel answers through
    joblib.

    >>> import numpy as np
    >>> from persfl import Best, Estimator, Refit, Uniform, personalize
    >>> from persfl.sources import clustered_regression
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> devices = clustered_regression(n=30, clusters=2, rows=10, features=2, seed=0)
    >>> public = np.random.default_rng(0).standard_normal((50, 2))
    >>> tree = Estimator(DecisionTreeRegressor(max_depth=3))
    >>> fleet = LoopFleet(devices, learner=tree, proposer=Refit(public), targets=[0])
    >>> rounds = list(personalize(fleet, sampler=Uniform(5), adopter=Best(), rounds=3))
    >>> len(rounds)
    3
    """

    def __init__(
        self,
        devices: object,
        *,
        learner: Learner | Sequence[Learner],
        proposer: Proposer,
        targets: Sequence[Hashable] | None = None,
        seed: int = 0,
        start: str | Model | Models | None = None,
        holdout: float = 0.0,
        local: Proposer | None = None,
        n_jobs: int | None = 1,
    ) -> None:

        def pairwise(task: EngineTask) -> Engine:
            return Pairwise(task, n_jobs)

        super().__init__(
            devices,
            learner=learner,
            proposer=proposer,
            targets=targets,
            seed=seed,
            start=start,
            holdout=holdout,
            local=local,
            engine=pairwise,
        )
