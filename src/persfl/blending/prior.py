"""What the fleet is like: the mean of the devices' coefficients, how much each of them differs, and how noisy labels are.

Devices are asked to refit, drawn toward the current mean (see `Toward`), and asked again with the mean shifted by a known `u`.
How much of the shift comes back tells how much of an answer is the prior and not the device's rows, so the spread of the answers
can be corrected:

    back = mean of (b' - b) / u;   v = variance of b;   mean = mean of b;   spread = sqrt((v + back * spread) * v / (1 - back))

the geometric mean of an EM step and of the value that would leave v unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from persfl.blending.toward import Toward, design, drawn, moments
from persfl.devices import Devices
from persfl.seeds import stream
from persfl.types import Array, Data
from persfl.worth import pooled_fit

ROUNDS = 6
ASKED = 400  # devices a round at most: their mean is known well enough
_CHUNK = 16 * 2**20


@dataclass(frozen=True, eq=False)
class Prior:
    """Coefficients of a device: normal about `mean` with variances `spread`; labels: with variance `noise` about its line."""

    pooled: Array
    mean: Array
    spread: Array
    noise: float
    answers: int  # how many were needed

    @property
    def strength(self) -> Array:
        """How strongly a refit is drawn toward the mean, per coefficient."""
        return self.noise / self.spread


def learned(learner: Any, rows: Devices, *, seed: int, rounds: int = ROUNDS) -> Prior:
    """Learned from refit answers of these devices.

    >>> from persfl import Linear
    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(n=200, clusters=1, rows=12, features=2, noise=0.5, seed=0)
    >>> found = learned(Linear(), devices, seed=0)
    >>> bool(np.abs(found.mean - devices.true_weights[0]).max() < 0.1), bool(0.2 < found.noise < 0.3)
    (True, True)
    """
    pooled = pooled_fit(learner, rows, seed)
    mean, spread, noise, answers = pooled, np.full(len(pooled), 0.1), 0.3, 0
    order = np.argsort(stream(seed, "prior").at(np.arange(len(rows))).uniform(1)[:, 0], kind="stable")
    for r in range(rounds):
        who = np.roll(order, -r * ASKED)[:ASKED]
        toward = Toward(noise / spread)
        sign = np.where(stream(seed, "shift", r).at(who).uniform(len(mean)) < 0.5, -1.0, 1.0) * np.sqrt(spread)
        said, back, rough = [], [], []
        for lo, hi in _parts(rows, who):
            data, shift = rows.gather(who[lo:hi]), sign[lo:hi]
            plain = toward.answer(learner, toward.ask(learner, mean), data, None)
            shifted = toward.answer(learner, toward.ask(learner, mean + shift), data, None)
            said.append(plain)
            back.append((shifted - plain) / shift)
            rough.append(noise_of(learner, data, plain, toward.strength))
        b = np.concatenate(said)
        mean, v = b.mean(axis=0), b.var(axis=0)
        kept = np.clip(np.concatenate(back).mean(axis=0), 0.0, 0.97)
        spread = np.maximum(np.sqrt((v + kept * spread) * v / (1.0 - kept)), 1e-4)
        noise = float(np.exp(np.log(np.concatenate(rough)).mean()))
        answers += 2 * len(who)
    return Prior(pooled, mean, spread, noise, answers)


def noise_of(learner: Any, data: Data, model: Array, strength: Array) -> Array:
    """(...) each device's own mean squared error, corrected for what its refit has taken from its own rows."""
    X = design(learner, data.X)
    gram, _ = moments(learner, data)
    turned = np.linalg.solve(gram + strength[..., None] * np.eye(gram.shape[-1]), np.swapaxes(X, -1, -2))
    leverage = (np.swapaxes(turned, -1, -2) * X).sum(axis=-1)
    left = data.y - (X * model[..., None, :]).sum(axis=-1)
    each = data.weight * left**2 / np.maximum(1.0 - leverage, 0.05)
    return np.asarray(np.maximum(each.sum(axis=-1) / data.weight.sum(axis=-1), 1e-5))


def own_strength(learner: Any, rows: Devices, prior: Prior) -> tuple[Array, Array]:
    """(devices, size) how strongly each device's own refit is drawn, by its own noise and the fleet's; (devices,) that noise."""
    found = np.empty(len(rows))
    for lo, hi in _parts(rows, np.arange(len(rows))):
        data = rows.gather(np.arange(lo, hi))
        model = drawn(*moments(learner, data), prior.mean, prior.strength)
        found[lo:hi] = noise_of(learner, data, model, prior.strength)
    noise = np.sqrt(found * prior.noise)
    return noise[:, None] / prior.spread, noise


def _parts(rows: Devices, who: Any) -> list[tuple[int, int]]:
    """Positions in parts whose gathered rows stay small."""
    each = 16 * (rows.features + 3) * int(rows.counts[who].max(initial=1))
    size = max(1, _CHUNK // each)
    return [(i, min(i + size, len(who))) for i in range(0, len(who), size)]
