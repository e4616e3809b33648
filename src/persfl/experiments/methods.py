"""From settings and a seed to error curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from persfl.adopters import Best
from persfl.devices import Devices
from persfl.experiments.digits import digit_curve
from persfl.experiments.rounds import rounds_of
from persfl.experiments.spec import SHARING, Settings
from persfl.fleets import ArrayFleet, LoopFleet
from persfl.learners import Estimator, Linear, Tree
from persfl.loop import personalize
from persfl.proposers import GradientStep, Refit
from persfl.samplers import Uniform
from persfl.seeds import stream
from persfl.sources import Switch, clustered_regression, clustered_stream
from persfl.types import Array, Data

TOGETHER = 12  # runs that go through one fleet; fixed, so that a run's result does not depend on how many runs were asked for


def curves(settings: Settings, runs: Sequence[int], seed: int) -> Array:
    """(runs, rounds) the error after every round; those of trees and networks begin with the error before the first (round 0)."""
    if not settings.vector:
        curve = _tree_curve if settings.tree else digit_curve
        return np.stack([curve(settings, _seed(seed, run)) for run in runs])
    if settings.method in SHARING:
        return np.stack([_vector_curves(settings, [_seed(seed, run)])[0] for run in runs])
    return _vector_curves(settings, [_seed(seed, run) for run in runs])


def _seed(seed: int, run: int) -> int:
    return stream(seed, "run", run).integer()


def _shape(settings: Settings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in ("clusters", "rows", "features", "noise", "deviation")}


class _Worlds:
    """Independent runs side by side in one fleet: run k has devices k*n to (k+1)*n - 1, its target is the first of them."""

    def __init__(self, settings: Settings, seeds: Sequence[int]) -> None:
        make = clustered_stream if settings.online else clustered_regression
        shape = _shape(settings)
        before = [make(settings.n, **shape, seed=seed) for seed in seeds]
        after = before
        if settings.drift_at:
            moved = np.array(before[0].clusters)
            moved[0] = (moved[0] + 1) % settings.clusters
            after = [make(settings.n, **shape, seed=seed, labels=moved) for seed in seeds]
        self.truth = [np.stack([np.asarray(world.true_weights)[0] for world in worlds]) for worlds in (before, after)]
        self.drift_at = settings.drift_at
        self.run = np.repeat(np.arange(len(seeds)), settings.n)
        self.clusters = np.concatenate([world.clusters for world in before])
        self.targets = [k * settings.n for k in range(len(seeds))]
        self.source: Any = _joined(before, self._own(settings, shape, seeds, None))
        if settings.drift_at:
            self.source = Switch(self.source, _joined(after, self._own(settings, shape, seeds, moved)), at=settings.drift_at)

    @staticmethod
    def _own(settings: Settings, shape: dict[str, Any], seeds: Sequence[int], labels: Any) -> list[Data] | None:
        """Rows that the targets keep, where only the others' are renewed."""
        if not settings.online or settings.online_target:
            return None
        return [clustered_regression(settings.n, **shape, labels=labels, seed=seed)[0] for seed in seeds]

    def errors(self, models: Array, r: int) -> Array:
        """(runs,) squared distance from the weights that make the target's data now."""
        truth = self.truth[bool(self.drift_at) and r >= self.drift_at]
        return np.asarray(((models - truth) ** 2).sum(axis=1))


def _joined(worlds: list[Any], own: list[Data] | None) -> Any:
    if isinstance(worlds[0], Devices):
        return Devices.joined(worlds)
    return _JoinedStream(worlds, own)


class _JoinedStream:
    """Streams side by side; `own` are rows that the targets keep while everybody else's are renewed."""

    def __init__(self, worlds: list[Any], own: list[Data] | None) -> None:
        self.worlds, self.own = worlds, own
        self.ids = range(sum(len(world.ids) for world in worlds))

    def __call__(self, r: int) -> Devices:
        now = [world(r) for world in self.worlds]
        for devices, data in zip(now, self.own or [], strict=False):
            devices.X[: data.rows], devices.y[: data.rows] = data.X, data.y
        return Devices.joined(now)


def _vector_curves(settings: Settings, seeds: Sequence[int]) -> Array:
    worlds = _Worlds(settings, seeds)
    step = GradientStep(settings.step_size)
    proposer: Any = step
    if settings.method == "algorithm2":
        proposer = _refit(settings, seeds[0])
    fleet = ArrayFleet(
        worlds.source,
        learner=Linear(),
        proposer=proposer,
        targets=worlds.targets,
        seed=seeds[0],
        local=step if settings.method == "local" else None,
    )
    rounds = rounds_of(settings, fleet, worlds.run, worlds.clusters, seeds[0])
    return np.stack([worlds.errors(fleet.models, round_.r) for round_ in rounds], axis=1)


def _refit(settings: Settings, seed: int) -> Refit:
    public = stream(seed, "public").generator().standard_normal((settings.public, settings.features))
    return Refit(public, private_weight=settings.private_weight, public_weight=settings.public_weight)


def _tree_curve(settings: Settings, seed: int) -> Array:
    """Error on fresh rows, in units of the error of a model fitted to all rows of the target's cluster."""
    shape = _shape(settings)
    world = clustered_regression(settings.n, **shape, seed=seed)
    source: Any = world
    if settings.online:
        source = _joined([clustered_stream(settings.n, **shape, seed=seed)], None if settings.online_target else [world[0]])
    fresh = stream(seed, "validation").generator().standard_normal((settings.validation, settings.features))
    clusters, weights = np.asarray(world.clusters), np.asarray(world.true_weights)
    truth = fresh @ weights[0]
    if settings.learner == "tree":
        learner: Any = Tree(settings.depth)
    else:
        learner = Estimator(RandomForestRegressor(settings.trees, max_depth=settings.depth))
    kin = np.flatnonzero(clusters == clusters[0])
    together = [world[int(k)] for k in kin]
    rows = Data(*(np.concatenate([getattr(data, part) for data in together]) for part in ("X", "y", "weight")))
    yardstick = learner.fit(rows, stream(seed, "oracle"))

    def error(model: Any) -> float:
        return float(((learner.predict(model, fresh) - truth) ** 2).mean())

    limit = error(yardstick)
    fleet = LoopFleet(source, learner=learner, proposer=_refit(settings, seed), targets=[0], seed=seed)
    fleet.observe(0)
    values = [error(fleet.models[0]) / limit]
    for _ in personalize(fleet, sampler=Uniform(settings.peers), adopter=Best(), rounds=settings.rounds, seed=seed):
        values.append(error(fleet.models[0]) / limit)
    return np.array(values)
