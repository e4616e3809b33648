"""What the linear rule knows of a fleet, for models that are no vectors.

Its offers tell a model that all devices share what is personal (`told`), leave it something to
learn (`leftovers`), and say who is near whom. Classes are seen as numbers, the commonest against
the rest one after the other: what linear models say of those are no chances, but a forest that is
told them makes chances of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from persfl.devices import Devices
from persfl.evaluation.row_order import RowOrder
from persfl.methods.mixed.device_sums import DeviceSums
from persfl.methods.mixed.hidden_rows import HiddenRows, hidden_rows
from persfl.methods.mixed.linear_rule import blend_of_sums
from persfl.methods.mixed.principal_axes import axes_of
from persfl.methods.mixed.sums_blend import LinearBlend, SumsBlend
from persfl.types import Array, IntArray
from persfl.units import Units

# What models may be told beside the offers: the device's own level, one number for all its rows
DEVICE = "device"
# Classes that are seen as numbers, the commonest first. Each costs a linear rule, and adds columns
# to the rows that models are told.
SEEN = 3


@dataclass(frozen=True, eq=False)
class LinearView:
    """Linear models of every offer and device, in the units of the rows; the constant is last."""

    hidden: HiddenRows
    names: tuple[str, ...]
    """Of the offers; the same for every label."""
    blends: Sequence[LinearBlend]
    """One a label: a regression has one."""
    known: Sequence[SumsBlend]
    models: Array
    """(labels, offers + 1, n, features + 1) of all rows, `DEVICE` behind the offers, ..."""
    folds: Array
    """... and (folds, ...) of those that a fold does not hide."""
    said: Array
    """(rows, labels, offers + 1) of models that have not seen the row; NaN where all have."""
    calm: Array
    """(n,) how much a row of each device counts as evidence: 1, or less for a loud one."""

    def places(self, told: Sequence[str]) -> list[int]:
        """Where these stand among the models."""
        return [(*self.names, DEVICE).index(name) for name in told]

    @property
    def judged(self) -> NDArray[np.bool_]:
        """(rows,) whether some model has not seen the row."""
        return np.isfinite(self.said[:, 0, 0])

    @property
    def posterior(self) -> Array:
        """(n, centres) how likely each is a device's centre: labels are seen independently."""
        with np.errstate(divide="ignore"):
            likely = sum(np.log(each.posterior) for each in self.blends)
        least = np.where(np.isfinite(likely), likely, -np.inf)
        top = np.maximum(least.max(axis=1, keepdims=True), -1e300)
        found = np.exp(least - top)
        return np.asarray(found / np.maximum(found.sum(axis=1, keepdims=True), 1e-300))


def linear_view(
    rows: Devices,
    *,
    classes: int,
    seed: int,
    order: RowOrder,
) -> LinearView:
    """The linear rule of these rows, in units of its own."""
    hidden = hidden_rows(rows, seed, order)
    labels = [rows.y]
    if classes:
        often = np.bincount(rows.y.astype(np.int64), rows.weight, minlength=classes)
        which = np.argsort(-often, kind="stable")[: max(1, min(SEEN, classes - 1))]
        labels = [(rows.y == k) + 0.0 for k in which.tolist()]
    units = Units.of(rows, "shared", labels=False)
    inside = units.inside(rows)
    axes = axes_of(inside, True)
    Z = axes.inside(inside.X)
    blends = []
    known = []
    models = []
    folds = []
    for y in labels:
        mean, scale = _units(y, rows.weight)
        parts = [
            DeviceSums.of(
                Z, (y - mean) / scale, rows.weight * (hidden.part == k), rows.start
            )
            for k in range(hidden.parts)
        ]
        found = blend_of_sums(parts, hidden.folds, level=True, seed=seed)
        known.append(found)
        blends.append(found.blended(axes))

        level = found.offers.names.index("level")

        def outside(
            each: Array, mean: float = mean, scale: float = scale, level: int = level
        ) -> Array:
            """(offers + 1, n, features + 1) in the units of rows and labels, constants last."""
            flat = axes.outside(each.reshape(-1, each.shape[-1]))
            slopes = flat[:, 1:] * scale / units.scale
            constant = flat[:, 0] * scale + mean - slopes @ units.mean
            both = np.column_stack([slopes, constant])
            models = both.reshape(*each.shape[:-1], -1)
            device = np.zeros((1, *models.shape[1:]))
            device[0, :, -1] = each[level, :, 0] * scale + mean
            return np.concatenate([models, device])

        models.append(outside(found.whole.models))
        folds.append([outside(each) for each in found.folds])
    calm = np.ones(len(rows)) if classes else known[0].calm
    by_fold = np.array(folds).swapaxes(0, 1)
    said = _unseen(rows, hidden, by_fold)
    names = known[0].offers.names
    whole = np.array(models)
    return LinearView(hidden, names, blends, known, whole, by_fold, said, calm)


def _units(y: Array, weight: Array) -> tuple[float, float]:
    mean = float(np.average(y, weights=weight))
    spread = float(np.sqrt(np.average((y - mean) ** 2, weights=weight)))
    return mean, spread or 1.0


def _unseen(rows: Devices, hidden: HiddenRows, folds: Array) -> Array:
    """What each row is told by the models of the fold that hides it and knows most beside it."""
    said = np.full((len(rows.y), *folds.shape[1:3]), np.nan)
    # of ordered rows several folds hide the latest: those that know more come later
    for fold, models in zip(hidden.folds, folds, strict=True):
        at = np.flatnonzero(np.isin(hidden.part, fold.judge))
        said[at] = fold_says(models, rows.X[at], rows.owner[at])
    return said


def fold_says(models: Array, X: Array, owner: IntArray) -> Array:
    """(rows, labels, offers) what models (labels, offers, n, features + 1) say of rows."""
    found = np.empty((len(X), *models.shape[:2]))
    for at in np.ndindex(models.shape[:2]):
        mine = models[at][owner]
        found[:, at[0], at[1]] = (mine[:, :-1] * X).sum(axis=1) + mine[:, -1]
    return found
