"""Blend for counts and robust losses: the rule of `linear_rule`, with the learner's own loss.

1. Offers are the same mixed models, of working rows (`loss_offers`).
2. They are made again without some rows, hidden at all devices at once (`hidden_rows`).
3. With enough rows, trees of the whole fleet add to scores (`hidden_loss`).
4. One set of shares for the fleet makes the loss of those hidden rows least: of scores, so that
   offers are again one vector per device.
"""

from __future__ import annotations

import numpy as np

from persfl.devices import Devices
from persfl.evaluation.row_order import RowOrder
from persfl.learners.linear import Linear
from persfl.methods.mixed.hidden_loss import HiddenLoss
from persfl.methods.mixed.hidden_rows import HiddenRows, hidden_rows
from persfl.methods.mixed.linear_rule import BOOSTED, with_tree_offers
from persfl.methods.mixed.loss_home import LossHome
from persfl.methods.mixed.loss_offers import LossOffers
from persfl.methods.mixed.near_round import level_last, likeliest
from persfl.methods.mixed.principal_axes import PrincipalAxes, axes_of
from persfl.methods.mixed.sums_blend import LinearBlend, SumsBlend
from persfl.types import Array


def loss_blend(
    rows: Devices,
    learner: Linear,
    *,
    seed: int,
    order: RowOrder | None = None,
    trees: bool = True,
) -> LinearBlend:
    """Blend the models of these devices: `Linear("poisson")`, "huber" or "absolute".

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 1))
    >>> y = rng.poisson(np.exp(1.0 + 0.5 * X[:, 0])) + 0.0
    >>> rows = Devices.grouped(X, y, np.arange(60) % 6, range(6))
    >>> found = loss_blend(rows, Linear("poisson", intercept=True), seed=0)
    >>> bool(abs(found.models - [1.0, 0.5]).max() < 0.3)
    True
    """
    axes = axes_of(rows, learner.intercept)
    Z = axes.inside(rows.X)
    hidden = hidden_rows(rows, seed, order)
    home = LossHome(rows, Z, learner, hidden)
    copies = 1 + len(hidden.folds)
    offers = LossOffers.of(home.told, (len(rows), Z.shape[1]), copies, learner, seed)
    fits = offers.fit()
    told = home.judged(fits.folds, fits.calm, fits.reach)
    if order is not None and order.keys is not None:
        told = told.once_a_key(order.keys[told.row], offers.simplest)
    known = offers.blend(fits, told.shares(offers.simplest))
    if trees and len(rows.y) >= BOOSTED and _growable(rows, learner, told, hidden):
        known = with_tree_offers(known, rows, hidden, told)
    return _with_losses(known, axes, rows, learner)


def _growable(
    rows: Devices, learner: Linear, told: HiddenLoss, parts: HiddenRows
) -> bool:
    """Whether there is anything to grow trees from: nothing but zeros are no rates."""
    if learner.kind != "poisson":
        return True
    y = rows.y * rows.weight
    shown = [np.isin(parts.part, fold.learn) for fold in parts.folds]
    hidden = [y[told.row[left[told.row]]].sum() for left in shown]
    return bool(min(*(y[left].sum() for left in shown), *hidden) > 0)


def _with_losses(
    known: SumsBlend, axes: PrincipalAxes, rows: Devices, learner: Linear
) -> LinearBlend:
    """What is found, with the loss on a device's rows: of one model for all, and of models of the
    likeliest centres.
    """
    found = known.blended(axes)
    near, pooled = seen_models(known, axes)
    order = likeliest(found.posterior, found.likeness.chance)
    errors = np.full(found.centre_error.shape, np.inf)
    fleet = np.empty(len(rows))
    for i in range(len(rows)):
        models = np.concatenate([pooled[i : i + 1], near[found.centres[order[i]]]])
        losses = learner.loss(models, rows[i])
        fleet[i] = losses[0]
        errors[i, order[i]] = losses[1:]
    return found._replace(centre_error=errors, fleet_error=fleet)


def seen_models(known: SumsBlend, axes: PrincipalAxes) -> tuple[Array, Array]:
    """(n, size) models of neighbours' and of one model for all, in the order of `Linear`."""
    k = known.names.index("near")
    near, pooled = (
        level_last(axes.outside(known.whole.models[each]), known.offers.level)
        for each in (k, known.simplest)
    )
    return near, pooled
