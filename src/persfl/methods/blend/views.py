"""Two views of the same rows: the fleet's shared units, and each device about its own means.

    centred   z = (x - own mean) / spread,   spread^2 = (own sum of squares + 5 * usual variance
    within devices) / (own weight + 5)

Labels of a regression are centred likewise, and divided by their usual spread within devices. A
linear model of either view is a linear model of the other, device by device, so offers from both
can be mixed into one vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from persfl.devices import Devices
from persfl.learners.linear import Linear
from persfl.types import Array

VIEWS = ("shared", "centred")
USUAL = 5.0  # rows that the usual spread counts as, where a device has few of its own


@dataclass(frozen=True, eq=False)
class ViewSettings:
    """A view by its name, with what is usual within devices: the variance of every feature, and
    of the label (1 for classes).
    """

    name: str
    variance: Array
    label: float

    @staticmethod
    def of(name: str, told: Any) -> ViewSettings:
        """From what these devices tell of their spreads."""
        good = (
            np.isfinite(told.weight)
            & np.isfinite(told.squares).all(axis=1)
            & np.isfinite(told.label)
        )
        total = float(told.weight[good].sum()) or 1.0
        label = float(told.label[good].sum()) / total
        return ViewSettings(
            name,
            told.squares[good].sum(axis=0) / total,
            label if label > 1e-18 else 1.0,
        )

    @property
    def label_scale(self) -> float:
        """What labels are divided by."""
        return 1.0 if self.name == "shared" else float(np.sqrt(self.label))


@dataclass(frozen=True)
class View:
    """How each of some devices sees its rows."""

    centre: Array  # (devices, features)
    scale: Array
    level: Array  # (devices,) of labels
    label_scale: float

    @staticmethod
    def of(look: ViewSettings, rows: Devices, labels: bool) -> View:
        """The view of these devices.

        >>> devices = Devices.of([([[1.0], [3.0]], [10.0, 30.0])], quiet=True)
        >>> view = View.of(ViewSettings("centred", np.ones(1), 100.0), devices, True)
        >>> view.inside(devices).X.ravel().tolist(), view.inside(devices).y.tolist()
        ([-1.0, 1.0], [-1.0, 1.0])
        """
        n = len(rows)
        d = rows.features
        if look.name == "shared":
            return View(np.zeros((n, d)), np.ones((n, d)), np.zeros(n), 1.0)
        centre, level = means(rows, labels)
        squares = np.zeros((n, d))
        for j in range(d):
            away = rows.weight * (rows.X[:, j] - centre[rows.owner, j]) ** 2
            squares[:, j] = np.bincount(rows.owner, weights=away, minlength=n)
        scale = np.sqrt(
            (squares + USUAL * look.variance) / (rows.total[:, None] + USUAL)
        )
        return View(centre, np.where(scale > 1e-9, scale, 1.0), level, look.label_scale)

    def inside(self, rows: Devices) -> Devices:
        """The devices' rows in this view."""
        owner = rows.owner
        X = (rows.X - self.centre[owner]) / self.scale[owner]
        return Devices(
            X,
            (rows.y - self.level[owner]) / self.label_scale,
            rows.weight,
            rows.start,
            rows.ids,
        )

    def outside(self, models: Array, learner: Linear) -> Array:
        """(devices, size) these devices' linear models of this view as models of the shared
        units.
        """
        d = self.centre.shape[1]
        W = models.reshape(len(models), learner.classes, -1).copy()
        W[..., :d] *= self.label_scale / self.scale[:, None, :]
        if learner.intercept:
            W[..., d] = (
                W[..., d] * self.label_scale
                + self.level[:, None]
                - (W[..., :d] * self.centre[:, None, :]).sum(axis=-1)
            )
        return W.reshape(models.shape)


def means(rows: Devices, labels: bool) -> tuple[Array, Array]:
    """Every device's mean of each feature, and of its labels."""
    n = len(rows)
    total = rows.total
    centre = np.stack(
        [
            np.bincount(rows.owner, weights=rows.weight * rows.X[:, j], minlength=n)
            / total
            for j in range(rows.features)
        ],
        axis=1,
    )
    level = (
        np.bincount(rows.owner, weights=rows.weight * rows.y, minlength=n) / total
        if labels
        else np.zeros(n)
    )
    return centre, np.asarray(level)
