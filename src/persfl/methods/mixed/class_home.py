"""What one device does for a blend of classes whose rows stay at home: it answers the E-step with
its own loss, its models pulled toward centres that it is sent, and says of hidden rows what a pool
of its offers is worth. The coordinator does the rest (`persfl.federation.class_site`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from persfl.devices import Devices
from persfl.methods.mixed.class_fits import log_chances
from persfl.methods.mixed.class_hidden import JudgedRows, judged_rows
from persfl.methods.mixed.class_near import LikelyCentres, picked_centres, posterior_of
from persfl.methods.mixed.class_newton import USUAL, Bend, bent
from persfl.methods.mixed.class_offers import NEAR, Offer, Pulls
from persfl.methods.mixed.class_rows import (
    ClassRows,
    all_rows,
    device_rows,
    with_level,
)
from persfl.methods.mixed.hidden_rows import NEVER, PARTS, HiddenRows, folds_of
from persfl.methods.mixed.log_pool import (
    PoolSums,
    pool_loss,
    pool_shares,
    pool_sums,
)
from persfl.methods.mixed.made_up_rows import has_strayed, rolled_columns
from persfl.types import Array, IntArray

WORSE = 2.0  # times the loss of own rows alone: more, and others are not believed
SURE = 2.0  # and so much more of log chance, over all rows: few rows say little


class Centres(NamedTuple):
    """What a device makes its offers of: the fleet's model and the mean of its likeliest centres,
    each (copies, d, classes), and the variance of the fleet's slopes. Without a `mean` there are no
    neighbours.
    """

    slopes: float
    fleet: Array
    mean: Array | None


class MixedAtHome(NamedTuple):
    """A device's model (d, classes), and how much of each offer own rows decide."""

    model: Array
    own: Array


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
        log = self._log_chances(self.offers(told), rows.row, rows.fold + 1)
        return pool_sums(log, rows.label, rows.weight, shares)

    def mixed(self, told: Centres, shares: Array) -> MixedAtHome:
        """Its offers by these shares. But where its rows lose more than twice as much by them as by
        models that nobody else has a say in, these: shares are one for all devices, and so is the
        fleet's model, and one liar can spoil both.

        Hidden rows say so, by the models that have not seen them; and all rows, by the models of
        all rows, and where they cannot see these (`made_up_rows`): who is honest about the former
        can still lie in the latter alone.
        """
        offers = self.offers(told)
        mine = self._alone(told)
        belief = np.full(len(mine), 1.0 / len(mine))
        rows = self.judged(1.0)
        every = np.arange(len(self.rows.y))
        label = self.rows.y.astype(np.int64)
        weight = self.rows.weight
        log = self._log_chances(offers, every, np.zeros_like(every))
        lost = judged = pool_loss(log, label, weight, shares) / float(weight.sum())
        own = float(np.log(self.classes))  # even chances
        many = float(weight.sum())
        if rows.weight.sum() > 0:
            copy = rows.fold + 1
            many = float(rows.weight.sum())
            seen = rows.label, rows.weight
            alone = self._log_chances(mine, rows.row, copy)
            belief = pool_shares(alone, *seen, belief)
            own = pool_loss(alone, *seen, belief) / many
            log = self._log_chances(offers, rows.row, copy)
            judged = pool_loss(log, *seen, shares) / many
        lost = max(lost, judged + self._strayed(offers, shares))
        if many * lost > WORSE * many * own + SURE:
            return MixedAtHome(_pooled(mine, belief), np.ones(len(offers)))
        decided = np.array([float(offer.own[0]) for offer in offers])
        return MixedAtHome(_pooled(offers, shares), decided)

    def _strayed(self, offers: Sequence[Offer], shares: Array) -> float:
        """How much more is lost by the model of all rows at made-up rows than by those without
        hidden ones, if it is unlike them.
        """
        Z = with_level(rolled_columns(self.rows.X), self.level)
        models = np.stack([offer.models[:, 0] for offer in offers])
        scores = np.einsum("rd,ocdk,o->crk", Z, models, shares, optimize=True)
        # what all classes have is no chance
        scores -= scores.mean(axis=2, keepdims=True)
        if not has_strayed(scores[0], scores[1:]):
            return 0.0
        usual = log_chances(scores[1:].mean(axis=0))
        each = (np.exp(usual) * (usual - log_chances(scores[0]))).sum(axis=1)
        return float(self.rows.weight @ each / self.rows.weight.sum())

    def _alone(self, told: Centres) -> list[Offer]:
        """Even chances, and own rows by a usual prior and by the one that was told; and by a usual
        one in units of own rows: those of the run are another thing that one liar can spoil.
        """
        nothing = np.zeros_like(told.fleet)[:, None]
        found = [Offer("even chances", nothing, np.zeros(1))]
        for slopes in (USUAL, told.slopes):
            found += self._pulls(slopes).own_rows(nothing)
        return found + self._in_own_units(nothing)

    def _in_own_units(self, nothing: Array) -> list[Offer]:
        rows = self.rows
        share = rows.weight / rows.weight.sum()
        mean = share @ rows.X if self.level else np.zeros(rows.features)
        scale = np.sqrt(share @ (rows.X - mean) ** 2)
        scale = np.where(scale > 1e-12 * np.abs(mean), scale, 1.0)
        X = (rows.X - mean) / scale
        inside = Devices(X, rows.y, rows.weight, rows.start, rows.ids)
        shown = (self._whole.weight[:, 0] > 0).astype(np.float64)
        whole = all_rows(inside, shown, classes=self.classes, level=self.level)
        pulls = Pulls(device_rows(inside, whole), self.level, USUAL)
        found = []
        for offer in pulls.own_rows(nothing):
            models = offer.models.copy()
            models[:, :, : len(scale)] /= scale[:, None]
            if self.level:
                slopes = models[:, :, :-1]
                models[:, :, -1] -= np.einsum("d,cndk->cnk", mean, slopes)
            found.append(offer._replace(models=models))
        return found

    def _log_chances(
        self, offers: Sequence[Offer], row: IntArray, copy: IntArray
    ) -> Array:
        """(rows, offers, classes) of these rows, by these copies of each offer."""
        Z = self._whole.Z[0, row]
        log = np.empty((len(Z), len(offers), self.classes))
        for k, offer in enumerate(offers):
            mine = offer.models[copy, 0]
            log[:, k] = log_chances(np.einsum("rd,rdk->rk", Z, mine))
        return log

    def _pulls(self, slopes: float) -> Pulls:
        return Pulls(self._parts, self.level, slopes)


def _pooled(offers: Sequence[Offer], shares: Array) -> Array:
    """(d, classes) the models of all rows, by these shares."""
    each = np.stack([offer.models[0, 0] for offer in offers])
    return np.asarray(np.einsum("o,odk->dk", shares, each))
