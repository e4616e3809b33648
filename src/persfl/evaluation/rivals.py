"""The simple rivals of personalizing: own rows, one model for all, and that one fine-tuned."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from persfl.learners.fleet_mix import FleetMix
from persfl.learners.linear import Linear
from persfl.learners.near_rows import NearRows
from persfl.learners.network import Network
from persfl.learners.shared_trees import BoostedModels
from persfl.learners.shrunk import shrunk
from persfl.proposers.gradient import GradientStep
from persfl.proposers.refit import Refit
from persfl.seeds import stream
from persfl.traits import has_gradients
from persfl.types import Array, Data, Differentiable, IntArray, Learner, Model

if TYPE_CHECKING:
    from persfl.devices import Devices

Fits = Array | list[Model]  # one a device
Models = Fits | BoostedModels | FleetMix | NearRows
_NUMBERS = 2**22  # of rows and models that are fitted at a time
# times a fine-tuning step is quartered before the device keeps the pooled model
_SHORTER = 6


@runtime_checkable
class RowsElsewhere(Protocol):
    """Devices whose rows are not in this process, and who fits them where they are."""

    def pooled_fit(self, learner: Learner) -> Model:
        """As the function of this name."""

    def own_fits(self, learner: Learner, anchor: Model | None) -> Fits:
        """Every device's model from its own rows, shrunk toward `anchor` where there is one."""


def pooled_fit(learner: Learner, rows: Devices, seed: int = 0) -> Model:
    """One model fitted to everybody's rows (for squared loss through sums over devices, shrunk
    a hair to be unique).
    """
    if isinstance(rows, RowsElsewhere):
        return rows.pooled_fit(learner)
    if not isinstance(learner, Linear) or learner.kind != "squared":
        return learner.fit(Data(rows.X, rows.y, rows.weight), stream(seed, "pooled"))
    return pooled_of_sums(learner, *pooled_sums(learner, rows))


def pooled_sums(learner: Linear, rows: Devices) -> tuple[Array, Array]:
    """X'X (size, size) and X'y (size,) of all rows, by their weights."""
    size = learner.size(rows.features)
    gram = np.zeros((size, size))
    pull = np.zeros(size)
    for i in range(0, len(rows.X), 2**16):
        part = slice(i, i + 2**16)
        A = rows.X[part]
        if learner.intercept:
            A = np.column_stack([A, np.ones(len(A))])
        weighted = A * rows.weight[part, None]
        gram += weighted.T @ A
        pull += weighted.T @ rows.y[part]
    return gram, pull


def pooled_of_sums(learner: Linear, gram: Array, pull: Array) -> Array:
    """One model of squared loss, from the sums of all rows."""
    size = len(pull)
    ridge = np.full(size, max(1e-9 * float(np.trace(gram)), np.finfo(float).tiny))
    if learner.intercept:
        ridge[-1] = 0.0
    return np.asarray(np.linalg.solve(gram + np.diag(ridge), pull))


def own_fits(learner: Learner, rows: Devices, seed: int = 0) -> Fits:
    """Every device's model from its own rows alone."""
    if isinstance(rows, RowsElsewhere):
        return rows.own_fits(learner, None)
    if isinstance(learner, Linear):
        return shrunk(learner, rows)
    if has_gradients(learner):
        place = stream(seed, "own").at(np.arange(len(rows)))
        parts = _batches(learner, rows)
        fits = [learner.fit(rows.gather(part), place[part]) for part in parts]
        return np.concatenate(fits)
    return [learner.fit(rows[i], stream(seed, "own", i)) for i in range(len(rows))]


def tuned_fits(
    learner: Learner,
    rows: Devices,
    pooled: Model,
    public: Array | None,
    steps: GradientStep | None,
    seed: int = 0,
) -> Fits:
    """The pooled model, fine-tuned on every device's own rows: shrunk toward it, stepped from
    it, or refitted with its labels.
    """
    if isinstance(rows, RowsElsewhere):
        return rows.own_fits(learner, pooled)
    if isinstance(learner, Linear):
        return shrunk(learner, rows, pooled)
    if steps is not None and has_gradients(learner):
        parts = _batches(learner, rows)
        fits = [_stepped(learner, pooled, rows.gather(part), steps) for part in parts]
        return np.concatenate(fits)
    proposer = Refit(public if public is not None else rows.X[:0])
    probe = proposer.ask(learner, pooled)
    return [
        proposer.answer(learner, probe, rows[i], stream(seed, "tuned", i))
        for i in range(len(rows))
    ]


def _stepped(learner: Learner, pooled: Array, data: Data, steps: GradientStep) -> Array:
    """Own steps from the pooled model; where they do not lower a device's loss it takes shorter
    ones. A rival is no straw man.
    """
    models = np.tile(pooled, (len(data.y), 1))
    now = learner.loss(models, data)
    todo = np.arange(len(models))
    for _ in range(_SHORTER):
        some = Data(data.X[todo], data.y[todo], data.weight[todo])
        tuned = _own_steps(learner, models[todo], some, steps)
        lower = learner.loss(tuned, some) <= now[todo]
        models[todo[lower]] = tuned[lower]
        todo = todo[~lower]
        steps = replace(steps, step_size=steps.step_size / 4)
        if not len(todo):
            break
    return models


def _own_steps(
    learner: Learner, models: Array, data: Data, steps: GradientStep
) -> Array:
    """Where these steps lead; those of a network are taken where it is computed."""
    if isinstance(learner, Network) and steps.batch is None:
        return learner.stepped(models, data, steps.steps, steps.step_size)
    return steps.answer(learner, models, data, None)


def _batches(learner: Differentiable, rows: Devices) -> list[IntArray]:
    """Devices in batches of similar memory, in their order."""
    each = learner.size(rows.features) + int(rows.counts.max(initial=1)) * rows.features
    step = max(1, _NUMBERS // each)
    return [np.arange(i, min(i + step, len(rows))) for i in range(0, len(rows), step)]
