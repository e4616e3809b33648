"""Networks on clustered digits: the share of held-out digits that devices' own models get wrong, round after round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from persfl.devices import Devices
from persfl.errors import Diverged, need
from persfl.experiments.rounds import rounds_of
from persfl.experiments.spec import Settings
from persfl.fleets import ArrayFleet
from persfl.learners import Network
from persfl.proposers import GradientStep
from persfl.seeds import stream
from persfl.sources import clustered_digits
from persfl.types import Array


def mlp() -> Any:
    """64 pixels, 32 hidden units, 10 digits: 2,410 weights."""
    nn = need("torch", extra="torch", why="networks").nn
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def cnn() -> Any:
    """8 filters of 3 x 3 pixels, the largest of each 2 x 2 answers, 10 digits: 810 weights."""
    nn = need("torch", extra="torch", why="networks").nn
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 10))


LEARNERS = {"mlp": lambda seed: Network(mlp, seed=seed), "cnn": lambda seed: Network(cnn, shape=(1, 8, 8), seed=seed)}


def digit_curve(settings: Settings, seed: int) -> Array:
    """(rounds + 1,) the error before the first round and after each: the mean over devices of the share of wrong labels.

    A run that diverges is wrong about everything from there on.

    >>> error = digit_curve(Settings(learner="mlp", method="fedavg", n=24, clusters=1, rounds=30, step_size=1.0, share=1.0), 0)
    >>> error.shape, bool(error[0] > 0.8), bool(error[-1] < 0.5)
    ((31,), True, True)
    """
    if settings.method == "local":  # every device from the common start, on its own
        settings = replace(settings, method="finetuned", alone=settings.rounds)
    world = clustered_digits(settings.n, clusters=settings.clusters, rows=settings.rows, held=settings.held, seed=seed)
    learner = LEARNERS[settings.learner](stream(seed, "weights").integer())  # that all devices start from
    fleet = ArrayFleet(
        world.training, learner=learner, proposer=GradientStep(settings.step_size), device=settings.device, seed=seed
    )
    judge = Judge(learner, world.held, settings.device)
    errors = [judge.error(fleet.models)]
    clusters = np.asarray(world.training.clusters)
    try:
        for _ in rounds_of(settings, fleet, np.zeros_like(clusters), clusters, seed):
            errors.append(judge.error(fleet.models))
    except Diverged:
        errors += [1.0] * (settings.rounds + 1 - len(errors))
    return np.array(errors)


class Judge:
    """Devices' held-out rows, kept where networks are computed."""

    def __init__(self, learner: Network, held: Devices, device: str) -> None:
        torch = need("torch", extra="torch", why="networks")
        each = len(held.X) // len(held)
        self.device, self.outputs = device, torch.func.vmap(learner.outputs)
        self.X = torch.as_tensor(held.X.reshape(len(held), each, -1), dtype=getattr(torch, learner.dtype), device=device)
        self.y = torch.as_tensor(held.y.reshape(len(held), each), device=device)

    def error(self, models: Array) -> float:
        """The mean over devices of the share of rows that a device's own model labels wrong."""
        torch = need("torch", extra="torch", why="networks")
        with torch.no_grad():
            said = self.outputs(torch.as_tensor(models, dtype=self.X.dtype, device=self.device), self.X)
            return float((said.argmax(dim=-1) != self.y).double().mean())
