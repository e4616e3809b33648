"""Two views of the same rows: the fleet's shared units, and each device about its own means.

    centred   z = (x - own mean) / spread,   spread^2 = (own sum of squares + 5 * usual variance within devices) / (own weight + 5)

Labels of a regression are centred likewise, and divided by their usual spread within devices. A linear model of either view is a
linear model of the other, device by device, so offers from both can be mixed into one vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from persfl.devices import Devices
from persfl.types import Array

VIEWS = ("shared", "centred")
USUAL = 5.0  # rows that the usual spread counts as, where a device has few of its own


@dataclass(frozen=True)
class Usual:
    """What is usual within the devices of a fleet: the variance of every feature, and of the label (1 for classes)."""

    variance: Array
    label: float

    @staticmethod
    def of(rows: Devices, labels: bool) -> Usual:
        """Measured on these devices."""
        centre, level = _means(rows, labels)
        total = float(rows.weight.sum())
        variance = (rows.weight[:, None] * (rows.X - centre[rows.owner]) ** 2).sum(axis=0) / total
        label = float((rows.weight * (rows.y - level[rows.owner]) ** 2).sum() / total) if labels else 1.0
        return Usual(variance, label if label > 1e-18 else 1.0)


@dataclass(frozen=True)
class View:
    """How each of some devices sees its rows."""

    centre: Array  # (devices, features)
    scale: Array
    level: Array  # (devices,) of labels
    label_scale: float

    @staticmethod
    def of(name: str, rows: Devices, usual: Usual, labels: bool) -> View:
        """The view of these devices by this name.

        >>> devices = Devices.of([([[1.0], [3.0]], [10.0, 30.0])], quiet=True)
        >>> view = View.of("centred", devices, Usual.of(devices, True), True)
        >>> view.inside(devices).X.ravel().tolist(), view.inside(devices).y.tolist()
        ([-1.0, 1.0], [-1.0, 1.0])
        """
        n, d = len(rows), rows.features
        if name == "shared":
            return View(np.zeros((n, d)), np.ones((n, d)), np.zeros(n), 1.0)
        centre, level = _means(rows, labels)
        squares = np.zeros((n, d))
        for j in range(d):
            away = rows.weight * (rows.X[:, j] - centre[rows.owner, j]) ** 2
            squares[:, j] = np.bincount(rows.owner, weights=away, minlength=n)
        scale = np.sqrt((squares + USUAL * usual.variance) / (rows.total[:, None] + USUAL))
        return View(centre, np.where(scale > 1e-9, scale, 1.0), level, float(np.sqrt(usual.label)))

    def inside(self, rows: Devices) -> Devices:
        """The devices' rows in this view."""
        owner = rows.owner
        X = (rows.X - self.centre[owner]) / self.scale[owner]
        return Devices(X, (rows.y - self.level[owner]) / self.label_scale, rows.weight, rows.start, rows.ids)

    def outside(self, models: Array, learner: Any) -> Array:
        """(devices, size) these devices' linear models of this view as models of the shared units."""
        d = self.centre.shape[1]
        W = models.reshape(len(models), learner.classes, -1).copy()
        W[..., :d] *= self.label_scale / self.scale[:, None, :]
        if learner.intercept:
            W[..., d] = W[..., d] * self.label_scale + self.level[:, None] - (W[..., :d] * self.centre[:, None, :]).sum(axis=-1)
        return W.reshape(models.shape)


def _means(rows: Devices, labels: bool) -> tuple[Array, Array]:
    n, total = len(rows), rows.total
    centre = np.stack(
        [np.bincount(rows.owner, weights=rows.weight * rows.X[:, j], minlength=n) / total for j in range(rows.features)], axis=1
    )
    level = np.bincount(rows.owner, weights=rows.weight * rows.y, minlength=n) / total if labels else np.zeros(n)
    return centre, np.asarray(level)
