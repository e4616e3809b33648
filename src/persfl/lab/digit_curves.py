"""Networks on clustered digits: the share of held-out digits that devices' own models get wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from persfl.devices import Devices
from persfl.errors import Diverged, need
from persfl.fleets.array_fleet import ArrayFleet
from persfl.lab.figure_rounds import rounds_of
from persfl.lab.figure_settings import Settings
from persfl.learners.network import Network
from persfl.learners.responses import respond
from persfl.methods.blend_method import Blend
from persfl.methods.local_task import LocalTask
from persfl.proposers.gradient import GradientStep
from persfl.seeds import stream
from persfl.sources import clustered_digits
from persfl.sources.dealt import Dealt
from persfl.types import Array


def digit_mlp() -> Any:
    """64 pixels, 32 hidden units, 10 digits: 2,410 weights."""
    nn = need("torch", extra="torch", why="networks").nn
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def digit_cnn() -> Any:
    """8 filters of 3 x 3 pixels, the largest of each 2 x 2 answers, 10 digits: 810 weights."""
    nn = need("torch", extra="torch", why="networks").nn
    filters = (nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(*filters, nn.Flatten(), nn.Linear(72, 10))


DIGITS = 10
LEARNERS = {
    "mlp": lambda seed: Network(digit_mlp, seed=seed),
    "cnn": lambda seed: Network(digit_cnn, shape=(1, 8, 8), seed=seed),
}


def digit_curve(settings: Settings, seed: int) -> Array:
    """(rounds + 1,) the error before the first round and after each.

    An error is the mean over devices of the share of wrong labels. A run that diverges is wrong
    about everything from there on.

    >>> few = Settings(learner="mlp", method="fedavg", n=24, clusters=1, rounds=30)
    >>> error = digit_curve(replace(few, step_size=1.0, share=1.0), 0)
    >>> error.shape, bool(error[0] > 0.8), bool(error[-1] < 0.5)
    ((31,), True, True)
    """
    s = settings
    if s.method == "local":  # every device from the common start, on its own
        s = replace(s, method="finetuned", alone=s.rounds)
    world = clustered_digits(
        s.n, clusters=s.clusters, rows=s.rows, held=s.held, seed=seed
    )
    # that all devices start from
    learner = LEARNERS[s.learner](stream(seed, "weights").integer())
    step = GradientStep(s.step_size)
    fleet = ArrayFleet(
        world.training, learner=learner, proposer=step, compute=s.compute, seed=seed
    )
    judge = Judge(learner, world.held, s.compute)
    errors = [judge.error(fleet.models)]
    if s.method == "blend":  # which has no rounds
        return np.array(errors + s.rounds * [blended_error(world, learner, seed)])
    clusters = np.asarray(world.training.clusters)
    try:
        for _ in rounds_of(s, fleet, np.zeros_like(clusters), clusters, seed):
            errors.append(judge.error(fleet.models))
    except Diverged:
        errors += [1.0] * (s.rounds + 1 - len(errors))
    return np.array(errors)


def blended_error(world: Dealt, learner: Network, seed: int) -> float:
    """The mean over devices of the share of rows that a device's blend labels wrong."""
    task = LocalTask(world.training, learner, seed=seed, classes=DIGITS)
    models = Blend().run(task).models
    wrong = []
    for i, model in enumerate(models):
        rows = world.held[i]
        said = respond(learner, model, rows.X, DIGITS)
        wrong.append(float((said.argmax(axis=1) != rows.y).mean()))
    return float(np.mean(wrong))


class Judge:
    """Devices' held-out rows, kept where networks are computed."""

    def __init__(self, learner: Network, held: Devices, compute: str) -> None:
        torch = need("torch", extra="torch", why="networks")
        shape = (len(held), len(held.X) // len(held))
        dtype = getattr(torch, learner.dtype)
        self.compute = compute
        self.outputs = torch.func.vmap(learner.outputs)
        self.X = torch.as_tensor(
            held.X.reshape(*shape, -1), dtype=dtype, device=compute
        )
        self.y = torch.as_tensor(held.y.reshape(shape), device=compute)

    def error(self, models: Array) -> float:
        """The mean over devices of the share of rows that a device's own model labels wrong."""
        torch = need("torch", extra="torch", why="networks")
        with torch.no_grad():
            weights = torch.as_tensor(models, dtype=self.X.dtype, device=self.compute)
            labels = self.outputs(weights, self.X).argmax(dim=-1)
            return float((labels != self.y).double().mean())
