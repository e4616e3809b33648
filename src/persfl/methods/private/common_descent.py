"""One model for all by a few noised steps: what losses without sums can afford.

Every device tells, at the same model, the sum of its rows' clipped gradients and a count, with
noise. Steps go along the mean with momentum; the mean of the later models, in which noise averages
out, is the result.
"""

from __future__ import annotations

import numpy as np

from persfl.devices import Devices
from persfl.methods.private.private_budget import RunBudget
from persfl.privacy.mechanisms import gradient_clip, noised_gradient
from persfl.seeds import stream
from persfl.training.state import step_of
from persfl.types import Array, Data, Differentiable

MOMENTUM = 0.7


class MeanPath:
    """Steps along noised gradients with momentum, and the mean of the later models.

    >>> path = MeanPath(np.zeros(1), 0.5, 4)
    >>> for _ in range(4):
    ...     path.move(
    ...         path.model - 1.0
    ...     )  # the gradient of half the squared distance to 1
    >>> path.result.round(3).tolist()
    [1.482]
    """

    def __init__(self, start: Array, step: float, answers: int) -> None:
        self.model = start
        self._step = step
        self._later = range(answers // 2, answers)
        self._speed = np.zeros_like(start)
        self._sum = np.zeros_like(start)
        self._r = 0

    def move(self, slope: Array) -> None:
        """One step."""
        self._speed = MOMENTUM * self._speed - self._step * slope
        self.model = self.model + self._speed
        if self._r in self._later:
            self._sum = self._sum + self.model
        self._r += 1

    @property
    def result(self) -> Array:
        """The mean of the later half of the models so far."""
        many = max(self._r - self._later.start, 0)
        return np.asarray(self._sum / many) if many else self.model


def common_descent(
    learner: Differentiable,
    rows: Devices,
    clip: float | str,
    answers: int,
    spend: RunBudget,
) -> Array:
    """(size,) a model for all devices, each of which answers so often."""
    d = rows.features
    length = gradient_clip(d) if isinstance(clip, str) else clip
    z = spend.noise(answers)
    nothing = Data(np.zeros((1, d)), np.zeros(1))
    start = np.array(learner.init(nothing, stream(spend.seed, "start")))
    path = MeanPath(start, step_of("auto", learner, d), answers)
    seen = 0.0
    for r in range(answers):
        told = np.zeros(len(start) + 1)
        for i in range(len(rows)):
            source = spend.source(i, "gradient", r)
            told += noised_gradient(learner, path.model, rows[i], length, z, source)
        seen += told[-1]  # counts are as noisy as gradients, and every round tells them
        path.move(told[:-1] / max(seen / (r + 1), float(len(rows))))
    return path.result
