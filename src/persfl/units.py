"""Units: the scale on which devices compare models.

    shared    z = (x - fleet mean) / fleet spread, labels of a regression likewise
    centred   z = (x - own mean) / spread within devices: level differences between devices vanish,
    and never leave a device raw       z = x

What shared units reveal: one mean and one spread per column for the whole fleet. They follow from
three sums over all devices (of weights, of values, of squares), so a federation needs only the
totals, never the statistics of one device. Centred units need the sums of squares about the own
means alone; the own means stay at home.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from persfl.checks import one_of
from persfl.devices import Devices

if TYPE_CHECKING:
    from persfl.types import Array, IntArray

KINDS = ("shared", "centred", "raw")


@dataclass(frozen=True, eq=False)
class Units:
    """How rows become what a learner sees, and predictions become labels again.

    >>> devices = Devices.of(
    ...     [([[1.0], [3.0]], [10.0, 30.0]), ([[5.0], [7.0]], [50.0, 70.0])]
    ... )
    >>> units = Units.of(devices, "shared", labels=True)
    >>> units.mean.tolist(), units.inside(devices)[0].X.ravel().round(2).tolist()
    ([4.0], [-1.34, -0.45])
    >>> units.outside(np.array([0.0]), np.array([0])).tolist()
    [40.0]
    """

    kind: str
    mean: Array  # (features,) of the fleet
    scale: Array
    label_mean: float
    label_scale: float
    centres: Array  # (devices, features): own means; only centred units use them
    label_centres: Array

    @staticmethod
    def of(devices: Devices, kind: str, *, labels: bool) -> Units:
        """Measured on these rows; `labels` says whether labels have units (a regression's have,
        classes do not).
        """
        one_of("units", kind, KINDS)
        n = len(devices)
        d = devices.features
        centres = np.zeros((n, d))
        label_centres = np.zeros(n)
        plain = Units("raw", np.zeros(d), np.ones(d), 0.0, 1.0, centres, label_centres)
        if kind == "raw":
            return plain
        if kind == "centred":
            total = np.maximum(devices.total, np.finfo(float).tiny)
            owner = devices.owner
            for j in range(d):
                centres[:, j] = (
                    np.bincount(
                        owner, weights=devices.weight * devices.X[:, j], minlength=n
                    )
                    / total
                )
            if labels:
                label_centres = (
                    np.bincount(owner, weights=devices.weight * devices.y, minlength=n)
                    / total
                )
            return Units(
                kind,
                plain.mean,
                _spread(devices, centres[owner])[1],
                0.0,
                _label_spread(devices, label_centres[owner])[1] if labels else 1.0,
                centres,
                label_centres,
            )
        mean, scale = _spread(devices, None)
        label_mean, label_scale = _label_spread(devices, None) if labels else (0.0, 1.0)
        return Units(kind, mean, scale, label_mean, label_scale, centres, label_centres)

    @staticmethod
    def shared(
        mean: Array, scale: Array, label_mean: float, label_scale: float
    ) -> Units:
        """Shared units of a fleet whose moments are known: no device's own means are needed."""
        nobody = np.zeros((0, len(mean)))
        own = nobody, nobody[:, 0]
        return Units("shared", mean, scale, label_mean, label_scale, *own)

    def inside(self, devices: Devices) -> Devices:
        """These devices' rows in these units; for centred units they must be the devices these
        were measured on, in order.
        """
        if self.kind == "raw":
            return devices
        owner = devices.owner
        y = (devices.y - self._label_level(owner)) / self.label_scale
        return Devices(
            self.features(devices.X, owner),
            y,
            devices.weight,
            devices.start,
            devices.ids,
            columns=devices.columns,
        )

    def features(self, X: Array, owner: IntArray) -> Array:
        """Rows of these devices (by position) in these units."""
        if self.kind == "raw":
            return X
        away = self.centres[owner] if self.kind == "centred" else self.mean
        return np.ascontiguousarray((X - away) / self.scale)

    def outside(self, values: Array, owner: IntArray) -> Array:
        """Predicted values of these devices' rows, in the label's own units."""
        return np.asarray(values * self.label_scale + self._label_level(owner))

    def _label_level(self, owner: IntArray) -> Array | float:
        return self.label_centres[owner] if self.kind == "centred" else self.label_mean


def _spread(devices: Devices, about: Array | None) -> tuple[Array, Array]:
    """Weighted mean and root mean square deviation of every column, column by column to need no
    second copy of the rows.
    """
    found = [
        _one(devices.X[:, j], devices.weight, None if about is None else about[:, j])
        for j in range(devices.features)
    ]
    return np.array([mean for mean, _ in found]), np.array(
        [scale for _, scale in found]
    )


def _label_spread(devices: Devices, about: Array | None) -> tuple[float, float]:
    return _one(devices.y, devices.weight, about)


def _one(values: Array, weight: Array, about: Array | None) -> tuple[float, float]:
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(weight.sum())
        mean = float((weight * values).sum() / total) if about is None else 0.0
        away = values - (mean if about is None else about)
        scale = float(np.sqrt((weight * away**2).sum() / total))
    # A column that hardly moves has no scale of its own: what is left is rounding.
    steady = not np.isfinite(scale) or scale <= 1e-12 * max(
        abs(mean), float(np.abs(values).max(initial=0.0))
    )
    return mean, 1.0 if steady or scale == 0 else scale
