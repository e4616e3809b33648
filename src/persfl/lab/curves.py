"""From settings and a seed to error curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from persfl.adopters.best import Best
from persfl.devices import Devices
from persfl.fleets.array_fleet import ArrayFleet
from persfl.fleets.loop_fleet import LoopFleet
from persfl.lab.figure_rounds import rounds_of
from persfl.lab.figure_settings import SHARING, Settings
from persfl.learners.estimator import Estimator
from persfl.learners.linear import Linear
from persfl.learners.tree import Tree
from persfl.loop import personalize
from persfl.proposers.gradient import GradientStep
from persfl.proposers.refit import Refit
from persfl.samplers.uniform import Uniform
from persfl.seeds import stream
from persfl.sources import Switch, clustered_regression, clustered_stream
from persfl.types import Array, Data, IntArray, Learner, Model, Proposer

# Runs that go through one fleet. Fixed: a run's result must not depend on how many were asked for.
TOGETHER = 12


def curves(settings: Settings, runs: Sequence[int], seed: int) -> Array:
    """(runs, rounds) the error after every round.

    Curves of trees and networks begin with the error before the first round (round 0).
    """
    seeds = [run_seed(seed, run) for run in runs]
    if settings.tree:
        return np.stack([_tree_curve(settings, one) for one in seeds])
    if settings.network:
        from persfl.lab.digit_curves import digit_curve  # which needs torch

        return np.stack([digit_curve(settings, one) for one in seeds])
    if settings.method in SHARING:
        return np.stack([_vector_curves(settings, [one])[0] for one in seeds])
    return _vector_curves(settings, seeds)


def run_seed(seed: int, run: int) -> int:
    """The seed of one run."""
    return stream(seed, "run", run).integer()


def _shape(settings: Settings) -> dict[str, Any]:
    """What a made-up world is told."""
    every = asdict(settings)
    return {
        name: every[name]
        for name in ("clusters", "rows", "features", "noise", "deviation")
    }


class _Worlds:
    """Independent runs side by side in one fleet.

    Run k has devices k*n to (k+1)*n - 1, its target is the first of them.
    """

    def __init__(self, settings: Settings, seeds: Sequence[int]) -> None:
        self.settings = settings
        self.seeds = seeds
        before = self._made(None)
        first = before[0].clusters
        self.truth = [_weights(before)]
        self.run = np.repeat(np.arange(len(seeds)), settings.n)
        self.clusters = np.concatenate([world.clusters for world in before])
        self.targets = [k * settings.n for k in range(len(seeds))]
        self.source: Any = self._joined(before, None)
        if settings.drift_at:
            moved = np.array(first)
            moved[0] = (moved[0] + 1) % settings.clusters
            after = self._made(moved)
            self.truth.append(_weights(after))
            later = self._joined(after, moved)
            self.source = Switch(self.source, later, at=settings.drift_at)

    def _made(self, labels: IntArray | None) -> list[Any]:
        make = clustered_stream if self.settings.online else clustered_regression
        shape = _shape(self.settings)
        return [
            make(self.settings.n, **shape, seed=seed, labels=labels)
            for seed in self.seeds
        ]

    def _joined(self, worlds: list[Any], labels: IntArray | None) -> Any:
        """All worlds as one source; targets keep their rows where only the others' are renewed."""
        settings = self.settings
        if not settings.online:
            return Devices.joined(worlds)
        if settings.online_target:
            return _JoinedStream(worlds, [])
        shape = _shape(settings)
        own = []
        for seed in self.seeds:
            still = clustered_regression(settings.n, **shape, labels=labels, seed=seed)
            own.append(still[0])
        return _JoinedStream(worlds, own)

    def errors(self, models: Array, r: int) -> Array:
        """(runs,) squared distance from the weights that make the target's data now."""
        drift_at = self.settings.drift_at
        truth = self.truth[bool(drift_at) and r >= drift_at]
        return np.asarray(((models - truth) ** 2).sum(axis=1))


def _weights(worlds: list[Any]) -> Array:
    """(runs, features) the true weights of the targets."""
    return np.stack([np.asarray(world.true_weights)[0] for world in worlds])


class _JoinedStream:
    """Streams side by side; `own` are rows that targets keep while everybody else's are renewed."""

    def __init__(self, worlds: list[Any], own: list[Data]) -> None:
        self.worlds = worlds
        self.own = own
        self.ids = range(sum(len(world.ids) for world in worlds))

    def __call__(self, r: int) -> Devices:
        now = [world(r) for world in self.worlds]
        for devices, data in zip(now, self.own, strict=False):
            devices.X[: data.rows] = data.X
            devices.y[: data.rows] = data.y
        return Devices.joined(now)


def _vector_curves(settings: Settings, seeds: Sequence[int]) -> Array:
    worlds = _Worlds(settings, seeds)
    step = GradientStep(settings.step_size)
    proposer: Proposer = step
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
    return np.stack(
        [worlds.errors(fleet.models, round_.r) for round_ in rounds], axis=1
    )


def _refit(settings: Settings, seed: int) -> Refit:
    shape = (settings.public, settings.features)
    public = stream(seed, "public").generator().standard_normal(shape)
    private_weight = settings.private_weight
    public_weight = settings.public_weight
    return Refit(public, private_weight=private_weight, public_weight=public_weight)


def _tree_curve(settings: Settings, seed: int) -> Array:
    """Error on fresh rows, divided by that of a model of all rows of the target's cluster."""
    shape = _shape(settings)
    world = clustered_regression(settings.n, **shape, seed=seed)
    source: Any = world
    if settings.online:
        own = [] if settings.online_target else [world[0]]
        source = _JoinedStream([clustered_stream(settings.n, **shape, seed=seed)], own)
    size = (settings.validation, settings.features)
    fresh = stream(seed, "validation").generator().standard_normal(size)
    truth = fresh @ np.asarray(world.true_weights)[0]
    learner: Learner = Tree(settings.depth)
    if settings.learner == "forest":
        from sklearn.ensemble import RandomForestRegressor  # takes long to import

        learner = Estimator(
            RandomForestRegressor(settings.trees, max_depth=settings.depth)
        )

    def error(model: Model) -> float:
        return float(((learner.predict(model, fresh) - truth) ** 2).mean())

    limit = error(learner.fit(_rows_of_its_cluster(world), stream(seed, "oracle")))
    proposer = _refit(settings, seed)
    fleet = LoopFleet(
        source, learner=learner, proposer=proposer, targets=[0], seed=seed
    )
    fleet.observe(0)
    values = [error(fleet.models[0]) / limit]
    how: dict[str, Any] = {"sampler": Uniform(settings.peers), "adopter": Best()}
    for _ in personalize(fleet, **how, rounds=settings.rounds, seed=seed):
        values.append(error(fleet.models[0]) / limit)
    return np.array(values)


def _rows_of_its_cluster(world: Devices) -> Data:
    """The rows of everybody in the first device's cluster, together."""
    clusters = np.asarray(world.clusters)
    same = [world[int(k)] for k in np.flatnonzero(clusters == clusters[0])]
    X = np.concatenate([data.X for data in same])
    y = np.concatenate([data.y for data in same])
    return Data(X, y, np.concatenate([data.weight for data in same]))
