"""What a blend will take, known from the shapes before it begins: seconds of one core, and memory.

The constants were measured on one core of a server (`python benchmarks/scale.py` measures the same
kinds of fits). They tell the order of magnitude, which is what a person needs to decide.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from persfl.learners import Linear
from persfl.methods.blend.blend_settings import USUAL
from persfl.methods.blend.budget import SHORTER
from persfl.methods.blend.offers.own_steps import step_names
from persfl.methods.mixed.principal_axes import WIDE
from persfl.traits import has_gradients
from persfl.types import IntArray, Learner

# seconds and bytes from which on a person would want to know
LONG = 300.0
LARGE = 4 * 2**30
_DEVICE = 1e-3  # seconds per device
_MIXED = 1.2e-5  # seconds per device for mixed models, and square of the coefficients
_WORKING = 5.0  # times as many, where labels of mixed models are made again and again
_AXES = 1e-9  # seconds per row, column, and the fewer of both, for principal axes
_STEPPED = 8e-6  # seconds per question about steps
# seconds per row and coefficient for a device's own steps, all of them together
_STEPS = 3e-6
_TRAINED = 2e-5  # the same of networks
_BEGUN, _KNOWN = 3e8, 9e4  # bytes at all, and per device for what it knows of its peers


class Cost(NamedTuple):
    """What a fit will take."""

    seconds: float
    bytes: float

    @property
    def large(self) -> bool:
        """Whether to say so in advance."""
        return self.seconds >= LONG or self.bytes >= LARGE

    def __str__(self) -> str:
        """In words.

        >>> str(Cost(2400.0, 12 * 2**30)), str(Cost(45.0, 2**28)), str(Cost(2e5, 2**40))
        ('40 minutes and 12 GiB', '45 seconds and 0.2 GiB', '56 hours and 1,024 GiB')
        """
        size = self.bytes / 2**30
        return f"{_time(self.seconds)} and {size:,.{0 if size >= 10 else 1}f} GiB"


def cost_of(
    learner: Learner,
    counts: IntArray,
    features: int,
    *,
    budget: int = 640,
    classes: int = 0,
    ordered: bool = False,
    runs: int = 1,
) -> Cost | None:
    """Of a blend of devices with these numbers of rows; None for models that are only refitted.

    How long one refit of somebody else's estimator takes, no shape tells.

    >>> cost_of(Linear(intercept=True), np.full(46, 10), 4).large
    False
    >>> cost_of(Linear(intercept=True), np.full(100_000, 100), 40).large
    True
    """
    if not has_gradients(learner):
        return None
    size = learner.size(features)
    rows = counts.astype(np.float64)
    copies = 1 + USUAL.count(classes, ordered)
    kept = 8.0 * size * len(counts)
    held = _BEGUN + _KNOWN * len(counts) + 8.0 * features * float(rows.sum()) * copies
    if not isinstance(learner, Linear):
        each = _DEVICE + _TRAINED * rows * size
        return Cost(float(each.sum()) * runs, held + 30 * kept)
    if learner.kind in ("logistic", "multinomial"):
        each = _DEVICE + _STEPPED * SHORTER * budget + _STEPS * rows * size * copies
        return Cost(
            float(each.sum()) * runs,
            held + 2 * len(step_names(learner, USUAL.steps)) * kept,
        )
    wide = min(size, WIDE + 1)
    total = float(rows.sum())
    axes = _AXES * total * size * min(total, size) if size > wide else 0.0
    each_mixed = _MIXED * (170.0 + wide**2 + 0.011 * wide**3)
    each_mixed *= 1.0 if learner.kind == "squared" else _WORKING
    sums = 15 * 8.0 * wide**2 * len(counts)
    return Cost((each_mixed * len(counts) + axes) * runs, held + sums)


def _time(seconds: float) -> str:
    for name, length in (("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {name}"
    return f"{seconds:,.0f} seconds"
