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
    step = step_of("auto", learner, d)
    nothing = Data(np.zeros((1, d)), np.zeros(1))
    model = np.array(learner.init(nothing, stream(spend.seed, "start")))
    speed = np.zeros_like(model)
    seen = 0.0
    later = []
    for r in range(answers):
        told = np.zeros(len(model) + 1)
        for i in range(len(rows)):
            source = spend.source(i, "gradient", r)
            told += noised_gradient(learner, model, rows[i], length, z, source)
        seen += told[-1]  # counts are as noisy as gradients, and every round tells them
        count = max(seen / (r + 1), float(len(rows)))
        speed = MOMENTUM * speed - step * told[:-1] / count
        model = model + speed
        if 2 * r >= answers - 1:
            later.append(model)
    return np.asarray(np.mean(later, axis=0))
