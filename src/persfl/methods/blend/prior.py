"""What the fleet is like: the mean of the devices' coefficients, how much each of them differs, and
how noisy labels are.

Devices are asked to refit, drawn toward the current mean (see `Toward`), and asked again with the
mean shifted by a known `u`. How much of the shift comes back tells how much of an answer is the
prior and not the device's rows, so the spread of the answers can be corrected:

    back = mean of (b' - b) / u;   v = variance of b;   mean = mean of b;   spread = sqrt((v + back
    * spread) * v / (1 - back))

the geometric mean of an EM step and of the value that would leave v unchanged. Noise is the
geometric mean over devices, so that one loud device does not speak for all. The logarithm of a mean
of few squares is too low on average, by what `_unbiased` puts back; otherwise noise and pull would
shrink each other to nothing where devices have hardly more rows than coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import digamma

from persfl.methods.blend.fixed_point import tamed
from persfl.methods.blend.questions import Noise, Pull
from persfl.methods.blend.site import Group
from persfl.seeds import stream
from persfl.types import Array, IntArray


@dataclass(frozen=True, eq=False)
class Prior:
    """Coefficients of a device: normal about `mean` with variances `spread`; labels: with
    variance `noise` about its line.
    """

    pooled: Array
    mean: Array
    spread: Array
    noise: float

    @property
    def strength(self) -> Array:
        """How strongly a refit is drawn toward the mean, per coefficient."""
        return self.noise / self.spread


def learned(group: Group, pooled: Array, who: IntArray, *, rounds: int) -> Prior:
    """Learned from refit answers of these peers, from their common model on.

    >>> from persfl import Linear
    >>> from persfl.methods.blend.algorithm import local_site
    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(
    ...     n=200, clusters=1, rows=12, features=2, noise=0.5, seed=0
    ... )
    >>> group = local_site(devices, Linear()).alone(np.arange(199))
    >>> group.budget.each = 1e6
    >>> found = learned(group, np.zeros(2), np.arange(199), rounds=6)
    >>> (
    ...     bool(np.abs(found.mean - devices.true_weights[0]).max() < 0.1),
    ...     bool(0.2 < found.noise < 0.3),
    ... )
    (True, True)
    """
    mean = pooled
    spread = np.full(len(pooled), 0.1)
    noise = 0.3
    size = len(pooled)
    for r in range(rounds):
        strength = noise / spread
        shift = np.where(
            stream(group.seed, "shift", r).at(who).uniform(size) < 0.5, -1.0, 1.0
        ) * np.sqrt(spread)
        asked = np.concatenate([mean + 0.0 * shift, mean + shift])
        question = Pull(look=group.look, models=asked, strength=strength)
        answers = group.ask(question, np.tile(who, 2))["answers"]
        plain, shifted = answers.reshape(2, -1, size)
        good = np.isfinite(plain).all(axis=1) & np.isfinite(shifted).all(axis=1)
        if good.sum() < 2:
            break
        about = Noise(look=group.look, mean=mean, strength=strength)
        rough = group.ask(about, who[good])["noise"]
        b = mean + tamed((plain - mean)[good])
        kept = np.clip(((shifted - plain) / shift)[good].mean(axis=0), 0.0, 0.97)
        mean = b.mean(axis=0)
        v = b.var(axis=0)
        spread = np.maximum(np.sqrt((v + kept * spread) * v / (1.0 - kept)), 1e-4)
        rough = (rough * _unbiased(group.weight[who[good]]))[
            np.isfinite(rough) & (rough > 0)
        ]
        noise = float(np.exp(np.log(rough).mean())) if len(rough) else noise
    return Prior(pooled, mean, spread, noise)


def _unbiased(rows: Array) -> Array:
    """(...) what a mean of normal squares is multiplied by so that its logarithm is right on
    average; a level takes one row.
    """
    free = np.maximum(rows - 1.0, 1.0) / 2.0
    return np.asarray(free * np.exp(-digamma(free)))
