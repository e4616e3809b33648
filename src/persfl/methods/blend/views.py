"""Two views of the same rows: the fleet's shared units, and each device about its own means.

    centred   z = (x - own mean) / spread,   spread^2 = (own sum of squares + 5 * usual variance
    within devices) / (own weight + 5)

A linear model of either view is a linear model of the other, device by device, so offers from both
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
    """A view by its name, with the usual variance of every feature within devices."""

    name: str
    variance: Array

    @staticmethod
    def of(name: str, told: Any) -> ViewSettings:
        """From what these devices tell of their spreads."""
        good = np.isfinite(told.weight) & np.isfinite(told.squares).all(axis=1)
        total = float(told.weight[good].sum()) or 1.0
        return ViewSettings(name, told.squares[good].sum(axis=0) / total)


@dataclass(frozen=True)
class View:
    """How each of some devices sees its rows."""

    centre: Array  # (devices, features)
    scale: Array

    @staticmethod
    def of(look: ViewSettings, rows: Devices) -> View:
        """The view of these devices.

        >>> devices = Devices.of([([[1.0], [3.0]], [0.0, 1.0])], quiet=True)
        >>> view = View.of(ViewSettings("centred", np.ones(1)), devices)
        >>> view.inside(devices).X.ravel().tolist()
        [-1.0, 1.0]
        """
        shape = (len(rows), rows.features)
        if look.name == "shared":
            return View(np.zeros(shape), np.ones(shape))
        centre = means(rows)
        squares = squares_about(rows, centre) + USUAL * look.variance
        scale = np.sqrt(squares / (rows.total[:, None] + USUAL))
        return View(centre, np.where(scale > 1e-9, scale, 1.0))

    def inside(self, rows: Devices) -> Devices:
        """The devices' rows in this view."""
        owner = rows.owner
        X = (rows.X - self.centre[owner]) / self.scale[owner]
        return Devices(X, rows.y, rows.weight, rows.start, rows.ids)

    def outside(self, models: Array, learner: Linear) -> Array:
        """(devices, size) these devices' linear models of this view as models of the shared
        units.
        """
        d = self.centre.shape[1]
        W = models.reshape(len(models), learner.classes, -1).copy()
        W[..., :d] *= 1.0 / self.scale[:, None, :]
        if learner.intercept:
            W[..., d] -= (W[..., :d] * self.centre[:, None, :]).sum(axis=-1)
        return W.reshape(models.shape)


def means(rows: Devices) -> Array:
    """(devices, features) every device's mean of each feature."""
    return _added(rows, rows.X) / rows.total[:, None]


def squares_about(rows: Devices, centre: Array) -> Array:
    """(devices, features) every device's sum of squares about its centre."""
    return _added(rows, (rows.X - centre[rows.owner]) ** 2)


def _added(rows: Devices, each: Array) -> Array:
    """(devices, columns) sums over rows."""
    many = {"minlength": len(rows)}
    columns = (rows.weight * column for column in each.T)
    found = [np.bincount(rows.owner, weights=one, **many) for one in columns]
    return np.stack(found, axis=1).astype(np.float64)
