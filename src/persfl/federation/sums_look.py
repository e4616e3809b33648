"""A last look at the models of a blend from sums: whether a device's own rows do better alone.

Shares, units and what is usual are one for the whole fleet, so one liar can spoil them for
everybody. What a device's own sums say of its model, nobody else has a say in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from persfl.federation.last_look import MixLosses, loses_much
from persfl.methods.mixed.device_sums import DeviceSums, total
from persfl.methods.mixed.hidden_rows import NEVER, Hidden
from persfl.methods.mixed.sums_blend import SumsBlend
from persfl.types import Array, Mask

# toward the mean of own labels, in rows' worth
PULLS = 10.0 ** np.arange(-6, 3)
USUAL = 6  # the place of one row's worth, where no part can be hidden
ROUNDING = 1e-9  # of a device's weight: no row


class OwnAlone(NamedTuple):
    """(n, d) models of own rows, and their mean squared errors over parts that they have not seen;
    inf of a device with one part.
    """

    models: Array
    loss: Array


def own_alone(parts: Sequence[DeviceSums], level: bool) -> OwnAlone:
    """Ridge regressions, each pulled as its hidden parts like best.

    >>> rng = np.random.default_rng(0)
    >>> Z = np.column_stack([np.ones(20), rng.normal(size=20)])
    >>> y = Z @ [1.0, 3.0]
    >>> parts = [
    ...     DeviceSums.of(Z, y, (np.arange(20) % 5 == k) + 0.0, np.array([0, 20]))
    ...     for k in range(5)
    ... ]
    >>> own_alone(parts, level=True).models.round(3).tolist()
    [[1.0, 3.0]]
    """
    sums = total(parts)
    dealt = parts[:NEVER]
    missed = np.zeros((len(PULLS), len(sums.weight)))
    rows = np.zeros(len(sums.weight))
    for part in dealt:
        left = DeviceSums(*(a - b for a, b in zip(sums, part, strict=True)))
        there = (part.weight > 0) & (left.weight > ROUNDING * sums.weight)
        for k, pull in enumerate(PULLS):
            missed[k] += there * part.residual(_pulled(left, pull, level))
        rows += there * part.weight
    best = np.where(rows > 0, missed.argmin(axis=0), USUAL)
    every = np.stack([_pulled(sums, pull, level) for pull in PULLS])
    loss = np.where(rows > 0, missed.min(axis=0) / np.maximum(rows, 1e-300), np.inf)
    return OwnAlone(every[best, np.arange(len(best))], loss)


def _pulled(sums: DeviceSums, pull: float, level: bool) -> Array:
    """(n, d) ridge regressions; the level is not pulled."""
    d = sums.product.shape[1]
    weight = np.maximum(sums.weight, 1e-300)[:, None]
    size = np.einsum("nii->ni", sums.square) / weight
    wanted = np.where(size > 0, size, 1.0) * pull
    if level:
        wanted[:, 0] = ROUNDING
    square = sums.square + wanted[:, :, None] * np.eye(d)
    return np.asarray(np.linalg.solve(square, sums.product[..., None])[..., 0])


def worse_than_own(
    known: SumsBlend,
    parts: Sequence[DeviceSums],
    folds: Sequence[Hidden],
    alone: OwnAlone,
    rows: Array,
) -> Mask:
    """(n,) whose mixed models lose far more than own rows alone (see `last_look`); `rows` are how
    many each device has, whatever its sums count as.
    """
    sums = total(parts)
    weight = np.maximum(sums.weight, 1e-300)
    # what goes on from its own latest row is further from earlier ones, and no word of others
    settled = known.whole.models[: len(known.settled)]
    seen = sums.residual(np.einsum("c,cnd->nd", known.settled, settled))
    missed = np.zeros(len(weight))
    judged = np.zeros(len(weight))
    for fold, models in zip(folds, known.folds, strict=True):
        hidden = total([parts[k] for k in fold.judge])
        missed += hidden.residual(np.einsum("c,cnd->nd", known.linear, models))
        judged += hidden.weight
    level = known.offers.level
    mean = sums.product[:, 0] / weight if level else np.zeros(len(weight))
    spread = np.maximum(sums.label / weight - mean**2, 0.0)
    # few rows may be alike by luck
    alike = (mean / np.maximum(rows, 1.0)) ** 2
    missed = missed / np.maximum(judged, 1e-300)
    seen = seen / weight
    each = np.stack([seen, missed, alone.loss, spread, alike, rows], axis=1)
    return np.array([loses_much(MixLosses(*told)) for told in each.tolist()])
