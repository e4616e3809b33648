"""What a large fleet has in common is learned from some of its devices.

How much devices differ (Sigma), how loud they are, and how large slopes are is known well enough
from some thousand devices: the standard error of a variance is then about 2 %. So in a larger fleet
these are learned from a *panel*, drawn by the seed (for `near`: from the centres). Every device
then gets its own model and its own noise from its own rows and what the panel learned, whoever else
there is: time grows with devices as slowly as it can.
"""

from __future__ import annotations

import numpy as np

from persfl.methods.mixed.device_sums import DeviceSums
from persfl.methods.mixed.mixed_model import MixedModel, Variances
from persfl.methods.mixed.near_centres import Near, near
from persfl.types import Array, IntArray

OWN_STEPS = 8  # of the noise of devices that are not in the panel


def sums_of_devices(sums: DeviceSums, which: IntArray) -> DeviceSums:
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
    some = sums_of_devices(sums, panel)
    _, var = kind.fit(some, begin, steps)
    C = kind.unknown_centre(some, var)
    each = np.full(len(sums.weight), var.noise.usual)
    if kind.loud and known is not None:
        each = known.noise.each
    var = var._replace(noise=var.noise._replace(each=each))
    return told_by_others(kind, sums, var, C, OWN_STEPS if known is None else 1)


def told_by_others(
    kind: MixedModel, sums: DeviceSums, var: Variances, C: Array, steps: int = OWN_STEPS
) -> tuple[Array, Variances]:
    """Models of devices that others have told what the fleet has in common, and their own noise;
    `C` is how far those know the centre.
    """
    for _ in range(steps if kind.loud else 0):
        var = kind.with_own_noise(sums, var, C)
    return kind.own_models(sums, var), var


def panel_near(
    sums: DeviceSums,
    precision: Array,
    start: Array,
    Sigma: Array,
    centres: IntArray,
    steps: int,
) -> Near:
    """As `near`, with Sigma and the centres' own models learned from the centres alone."""
    if len(centres) == len(sums.weight):
        return near(sums, precision, start, Sigma, centres, steps)
    here = np.arange(len(centres))
    some = sums_of_devices(sums, centres)
    close = near(some, precision[centres], start[centres], Sigma, here, steps)
    models = start.copy()
    models[centres] = close.models
    found = near(sums, precision, models, close.Sigma, centres, 0)
    # the centres' own answers are those that they ended with
    found.models[centres] = close.models
    found.posterior[centres] = close.posterior
    return found
