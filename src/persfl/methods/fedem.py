"""FedEM: a few shared models, and every device's own mixture of them.

q_im(s) = softmax over m of ( log p_im - cost_m(x_s, y_s) )     which model made row s
p_im    = mean of q_im over its rows
w_m     <- w_m - step_size * mean of grad loss_m over rows, weighted by q
what device i predicts:  sum over m of p_im h_m(x)

cost is the loss, which is a negative log likelihood for classes and counts. Of numbers it is the
loss over its mean, as if noise were Gaussian (squared) or Laplacian (absolute), of one size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from persfl.checks import many, whole
from persfl.device_checks import refuse_rowless
from persfl.devices import Devices
from persfl.errors import Diverged, InputError
from persfl.learners.losses import softmax
from persfl.methods.method_fields import MethodSettings, setting
from persfl.methods.protocol import Needs, Task
from persfl.methods.single_fit import at_once
from persfl.seeds import stream
from persfl.training.state import Keep, State, rounds_for, step_of
from persfl.training.training_run import HALVINGS
from persfl.traits import has_gradients, traits_of
from persfl.types import Array, Data, Differentiable, Restarting

_SPREAD = {
    "squared": 2.0,
    "huber": 2.0,
    "absolute": 1.0,
}  # costs are loss / (this * mean loss)
RARE = 1e-6  # the least share of a model


class Mixture(NamedTuple):
    """Shared models (M, size), devices' shares of them (devices, M), and the rows' mean cost."""

    models: Array
    shares: Array
    loss: float


def mixture(
    learner: Differentiable,
    rows: Devices,
    *,
    told: int,
    rounds: int,
    step_size: float,
    seed: int = 0,
) -> Mixture:
    """So many rounds of EM with gradient steps, from models that start apart.

    >>> from persfl import Linear
    >>> from persfl.sources import clustered_regression
    >>> rows = clustered_regression(n=20, clusters=2, rows=10, features=3, seed=0)
    >>> found = mixture(Linear(), rows, told=2, rounds=200, step_size=0.1)
    >>> bool((found.shares[rows.clusters == 0].argmax(axis=1) == 0).all()) != bool(
    ...     (found.shares[rows.clusters == 0].argmax(axis=1) == 1).all()
    ... )
    True
    """
    data = rows.gather(np.arange(len(rows)))
    models = _starts(learner, rows, told, seed)
    shares = np.full((len(rows), told), 1.0 / told)
    loss = np.inf
    for _ in range(rounds):
        q, shares, loss = _expected(learner, models, shares, data)
        models = models - step_size * _slopes(learner, models, data, q)
        if not np.isfinite(models).all() or not np.isfinite(loss):
            raise Diverged("steps are too long", round=0, device=None)
    _, shares, loss = _expected(learner, models, shares, data)
    return Mixture(models, shares, loss)


def _starts(learner: Differentiable, rows: Devices, told: int, seed: int) -> Array:
    """As those of IFCA: the learner's own other starts, or N(0, I)."""
    place = stream(seed, "ifca")
    if isinstance(learner, Restarting):
        return np.stack([learner.fresh(rows[0], place.at(j)) for j in range(told)])
    start = learner.init(rows[0], stream(seed, "shared"))
    return np.asarray(place.generator().standard_normal((told, *start.shape)))


def _expected(
    learner: Differentiable, models: Array, shares: Array, data: Data
) -> tuple[Array, Array, float]:
    """(devices, rows, M) which model made each row, devices' shares, and the mean loss."""
    each = _row_losses(learner, models, data)
    weight = data.weight[..., None]
    cost = each
    kind = traits_of(learner).loss
    if kind in _SPREAD:
        likely = softmax(np.log(shares)[:, None] + np.zeros_like(each))
        mean = (weight * likely * each).sum() / weight.sum()
        for _ in range(3):  # the noise's size and who made what, in turn
            likely = softmax(
                np.log(shares)[:, None] - each / (_SPREAD[kind] * mean + 1e-300)
            )
            mean = (weight * likely * each).sum() / weight.sum()
        cost = each / (_SPREAD[kind] * mean + 1e-300)
    q = softmax(np.log(shares)[:, None] - cost)
    total = data.weight.sum(axis=1)
    new = (weight * q).sum(axis=1) / np.where(total > 0, total, 1.0)[:, None]
    new = np.where(total[:, None] > 0, np.maximum(new, RARE), shares)
    loss = float((weight * q * each).sum() / weight.sum())
    return q, new / new.sum(axis=1, keepdims=True), loss


def _row_losses(learner: Differentiable, models: Array, data: Data) -> Array:
    """(devices, rows, M) the loss of every row under every model; 0 where there is no row."""
    single = Data(data.X[:, :, None], data.y[:, :, None], np.ones((*data.y.shape, 1)))
    found = []
    for model in models:
        many = np.broadcast_to(model, (*data.y.shape, model.size))
        found.append(np.minimum(learner.loss(many, single), 1e12))
    return np.where(data.weight[..., None] > 0, np.stack(found, axis=2), 0.0)


def _slopes(learner: Differentiable, models: Array, data: Data, q: Array) -> Array:
    """(M, size) the mean gradient over all rows, weighted by q."""
    found = []
    for m, model in enumerate(models):
        mine = Data(data.X, data.y, data.weight * q[..., m])
        mass = mine.weight.sum(axis=1)
        each = learner.grad(np.broadcast_to(model, (len(mass), model.size)), mine)
        found.append(mass @ each / max(float(mass.sum()), 1e-12))
    return np.stack(found)


@dataclass(frozen=True)
class FedEM(MethodSettings):
    """Shared models, mixed by every device in shares of its own."""

    name: ClassVar[str] = "fedem"
    about: ClassVar[str] = (
        "A few shared models, mixed by every device in its own shares"
    )
    source: ClassVar[str] = "Marfoq, Neglia, Bellet, Kameni, Vidal 2021"

    models: int = setting(3, "how many models are shared")
    rounds: int | str = setting("auto", "rounds of EM; auto: 200, as its authors take")
    step_size: float | str = setting("auto", "the first step; halved if losses grow")

    def needs(self) -> Needs:
        return Needs(
            gradients=True,
            one_process=True,
            told="the number of shared models",
            leaves="Where a step takes each shared model, its rows weighted one by one.",
            not_federated="Devices there take no steps in which rows have weights of their own.",
        )

    def run(
        self, task: Task, *, stage: str = "final", keep: Keep | None = None
    ) -> State:
        n = task.n
        told = whole("models", self.models, least=1, most=n, why=many(n, "device"))
        learner = task.learner
        if not has_gradients(learner):
            raise InputError(f"fedem needs a model with gradients. Got {learner!r}.")
        refuse_rowless(task.rows)
        step = step_of(self.step_size, learner, task.features)
        rounds = 200 if self.rounds == "auto" else rounds_for(self.rounds, learner)
        found = None
        for _ in range(HALVINGS):
            try:
                found = mixture(
                    learner,
                    task.rows,
                    told=told,
                    rounds=rounds,
                    step_size=step,
                    seed=task.seed,
                )
                break
            except Diverged:
                step = step / 2
        if found is None:
            raise Diverged(
                f"steps down to {step:g} made losses grow.", round=0, device=None
            )
        return at_once(task, mixed_models(learner, found), stage=stage, keep=keep)


def mixed_models(learner: Differentiable, found: Mixture) -> Any:
    """A model per device: a vector where responses are linear, else (share, model) pairs."""
    if traits_of(learner).loss in _SPREAD and not traits_of(learner).tensors:
        return found.shares @ found.models
    return [
        list(zip(mine.tolist(), found.models, strict=True)) for mine in found.shares
    ]
