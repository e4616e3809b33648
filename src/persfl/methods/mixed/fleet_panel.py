"""What a large fleet has in common is learned from some of its devices.

How much devices differ (Sigma), how loud they are, and how large slopes are is known well enough
from a thousand devices: the standard error of a variance is then below 5 %. So in a larger fleet
these are learned from a *panel*, the devices that may be centres, drawn by the seed. Every device
then gets its own model and its own noise from what the panel learned, and time grows with devices
as slowly as it can.
"""

from __future__ import annotations

import numpy as np

from persfl.methods.mixed.device_sums import DeviceSums
from persfl.methods.mixed.mixed_model import MixedModel, Variances
from persfl.methods.mixed.near_centres import Near, near
from persfl.types import Array, IntArray

OWN_STEPS = 3  # of the noise of devices that are not in the panel


def some_devices(sums: DeviceSums, which: IntArray) -> DeviceSums:
    """The sums of these devices."""
    return DeviceSums(*(part[which] for part in sums))


def panel_fit(
    kind: MixedModel,
    sums: DeviceSums,
    panel: IntArray,
    known: Variances | None,
    steps: int,
) -> tuple[Array, Variances]:
    """As `kind.fit`, learning from the panel what devices have in common."""
    if len(panel) == len(sums.weight):
        return kind.fit(sums, known, steps)
    begin = known
    if known is not None:
        each = known.noise.each[panel]
        begin = known._replace(noise=known.noise._replace(each=each))
    _, var = kind.fit(some_devices(sums, panel), begin, steps)
    each = np.full(len(sums.weight), var.noise.usual)
    if kind.loud and known is not None:
        each = known.noise.each
    var = var._replace(noise=var.noise._replace(each=each))
    if kind.loud:
        for _ in range(OWN_STEPS if known is None else 1):
            var = kind.with_own_noise(sums, var)
    return kind.fit(sums, var, 0)


def panel_near(
    sums: DeviceSums,
    precision: Array,
    start: Array,
    Sigma: Array,
    panel: IntArray,
    steps: int,
) -> Near:
    """As `near`, with Sigma and the centres' own models learned from the panel."""
    if len(panel) == len(sums.weight):
        return near(sums, precision, start, Sigma, panel, steps)
    here = np.arange(len(panel))
    some = some_devices(sums, panel)
    close = near(some, precision[panel], start[panel], Sigma, here, steps)
    models = start.copy()
    models[panel] = close.models
    found = near(sums, precision, models, close.Sigma, panel, 0)
    # the panel's own answers are those that it ended with
    found.models[panel] = close.models
    found.posterior[panel] = close.posterior
    return found
