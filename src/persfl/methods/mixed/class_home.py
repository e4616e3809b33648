"""What one device does for a blend of classes whose rows stay at home: it answers the E-step with
its own loss, its models pulled toward centres that it is sent, and says of hidden rows what a pool
of its offers is worth. The coordinator does the rest (`persfl.federation.class_site`).
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from persfl.devices import Devices
from persfl.methods.mixed.class_fits import log_chances
from persfl.methods.mixed.class_hidden import JudgedRows, judged_rows
from persfl.methods.mixed.class_near import LikelyCentres, picked_centres, posterior_of
from persfl.methods.mixed.class_newton import Bend, bent
from persfl.methods.mixed.class_offers import NEAR, Offer, Pulls
from persfl.methods.mixed.class_rows import ClassRows, all_rows, device_rows
from persfl.methods.mixed.hidden_rows import NEVER, PARTS, HiddenRows, folds_of
from persfl.methods.mixed.log_pool import PoolSums, pool_sums
from persfl.types import Array, IntArray


class Centres(NamedTuple):
    """What a device makes its offers of: the fleet's model and the mean of its likeliest centres,
    each (copies, d, classes), and the variance of the fleet's slopes. Without a `mean` there are no
    neighbours.
    """

    slopes: float
    fleet: Array
    mean: Array | None


class ClassHome:
    """One device's rows; `part` (rows,) says which of them are hidden together."""

    def __init__(
        self, rows: Devices, part: IntArray, *, classes: int, level: bool, ordered: bool
    ) -> None:
        self.rows = rows
        self.classes = classes
        self.level = level
        folds = folds_of(np.arange(PARTS + (NEVER in part)), ordered=ordered)
        self._hidden = HiddenRows(part, folds)
        self._learned = [np.isin(part, fold.learn) for fold in folds]
        shown = np.stack([np.ones(len(part)), *self._learned]).astype(np.float64)
        self._whole = all_rows(rows, shown, classes=classes, level=level)

    @cached_property
    def _parts(self) -> list[ClassRows]:
        return device_rows(self.rows, self._whole)

    @cached_property
    def counts(self) -> Array:
        """(classes,) rows of each."""
        label = self.rows.y[self.rows.weight > 0].astype(np.int64)
        return np.bincount(label, minlength=self.classes).astype(np.float64)

    @cached_property
    def squares(self) -> Array:
        """(d,) sums of the squares of each column, that of ones as well."""
        return np.asarray(self.rows.weight @ self._whole.Z[0] ** 2)

    def bends(self, models: Array) -> Bend:
        """At models (copies, d, classes) of the first copies."""
        return bent(self._whole, models)

    def free(self, slopes: float, fleet: Array) -> Array:
        """(copies, d, classes) its models, hardly pulled to the fleet's."""
        *_, last = self._pulls(slopes).from_fleet(fleet[:, None])
        return np.asarray(last.models[:, 0])

    def near(self, slopes: float, centres: Array) -> tuple[LikelyCentres, Array]:
        """The likeliest of centres (copies, many, d, classes), and the model (copies, d, classes)
        that own rows make of their mean.
        """
        pulls = self._pulls(slopes)
        (axes,) = pulls.axes(pulls.variance)
        return picked_centres(self._parts[0], axes, centres, NEAR)

    def posterior(self, slopes: float, centres: Array) -> Array:
        """(many,) how likely each of centres (many, d, classes) is, by all rows."""
        pulls = self._pulls(slopes)
        (axes,) = pulls.axes(pulls.variance)
        return posterior_of(self._parts[0], axes, centres, NEAR)

    def offers(self, told: Centres) -> list[Offer]:
        """All of them, in order."""
        pulls = self._pulls(told.slopes)
        found = list(pulls.from_fleet(told.fleet[:, None]))
        if told.mean is not None:
            found += pulls.from_centres("near", told.mean[:, None])
        return found

    def judged(self, design: float) -> JudgedRows:
        """Its hidden rows."""
        return judged_rows(self.rows, self._hidden, self._learned, self.classes, design)

    def pool(self, told: Centres, design: float, shares: Array) -> PoolSums:
        """What hidden rows say of a pool of its offers."""
        rows = self.judged(design)
        Z = self._whole.Z[0, rows.row]
        log = np.empty((len(Z), len(shares), self.classes))
        for k, offer in enumerate(self.offers(told)):
            mine = offer.models[rows.fold + 1, 0]
            log[:, k] = log_chances(np.einsum("rd,rdk->rk", Z, mine))
        return pool_sums(log, rows.label, rows.weight, shares)

    def _pulls(self, slopes: float) -> Pulls:
        return Pulls(self._parts, self.level, slopes)
