"""Blend for squared loss: offers, judged on rows that they have not seen, and mixed by shares.

1. Offers are mixed models of per-device sums (`offers_from_sums`).
2. With enough rows, trees are grown for the whole fleet, with the device as a category
   (`shared_trees`): on the labels, and on what two of the offers leave of hidden rows.
3. All of it is done again without some rows, hidden at all devices at once (`hidden_rows`).
4. One set of shares for the fleet, by least squares over those hidden rows (`stacking`). Rows of a
   loud device count for as much less as they are noisier.

Offers of squared loss are linear in the model, so they are mixed into one vector per device; trees
are kept beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from persfl.devices import Devices
from persfl.evaluation.row_order import RowOrder
from persfl.learners.shared_trees import SharedTrees
from persfl.methods.mixed import PANEL
from persfl.methods.mixed.device_sums import DeviceSums, total
from persfl.methods.mixed.hidden_evidence import HiddenEvidence
from persfl.methods.mixed.hidden_rows import Hidden, HiddenRows, hidden_rows
from persfl.methods.mixed.likeness import Likeness
from persfl.methods.mixed.offers_from_sums import Offered, SumOffers
from persfl.methods.mixed.population import Population
from persfl.methods.mixed.principal_axes import PrincipalAxes, axes_of
from persfl.methods.mixed.stacking import shares_of
from persfl.seeds import distinct, stream
from persfl.types import Array, IntArray

# devices at most that may be the centre of another; time and memory grow with them
CENTRES = 1000
# fewer rows are not boosted
BOOSTED = 200
# hidden rows by which trees are judged; growing them takes most of the time
ENOUGH = 500
LEFT_OVER = ("level", "diagonal")  # offers whose leftovers are boosted


class LinearBlend(NamedTuple):
    """What comes out: `models` (n, columns) in the columns' order, the level first where there is
    one; `trees` are added, each by its share; `names` and `shares` of all offers.

    `made_of` (n, 3): how much own rows, the fleet and neighbours are of each model. `posterior`
    (n, centres): how likely each of `centres` is the centre of a device's model.
    """

    models: Array
    trees: tuple[tuple[float, SharedTrees], ...]
    names: tuple[str, ...]
    shares: Array
    made_of: Array
    posterior: Array
    centres: IntArray
    population: Population
    """What is known of a device that was not there."""
    centre_error: Array
    """(n, centres) mean squared errors of centres' models on a device's rows, ..."""
    fleet_error: Array
    """... and (n,) of one model for all."""
    likeness: Likeness


def linear_blend(
    rows: Devices,
    *,
    level: bool,
    seed: int,
    order: RowOrder | None = None,
    trees: bool = True,
) -> LinearBlend:
    """Blend the models of these devices.

    >>> from persfl.sources import clustered_regression
    >>> rows = clustered_regression(n=20, clusters=2, rows=8, features=3, seed=0)
    >>> found = linear_blend(rows, level=True, seed=0)
    >>> found.models.shape, round(float(found.shares.sum()), 6)
    ((20, 4), 1.0)
    """
    known, axes = judged_offers(rows, level=level, seed=seed, order=order, trees=trees)
    return known.blended(axes)


def judged_offers(
    rows: Devices,
    *,
    level: bool,
    seed: int,
    order: RowOrder | None = None,
    trees: bool = True,
    panel: int = PANEL,
    strangers: bool = False,
) -> tuple[SumsBlend, PrincipalAxes]:
    """Offers and their shares, and the columns that they are models of; `strangers` says that trees
    will meet other devices than these.
    """
    axes = axes_of(rows, level)
    Z = axes.inside(rows.X)
    hidden = hidden_rows(rows, seed, order)
    parts = [
        DeviceSums.of(Z, rows.y, rows.weight * (hidden.part == k), rows.start)
        for k in range(hidden.parts)
    ]
    known = blend_of_sums(parts, hidden.folds, level=level, seed=seed, panel=panel)
    keys = None if order is None else order.keys
    boosted = trees and len(rows.y) >= BOOSTED
    if boosted or keys is not None:
        told = HiddenEvidence.of(rows, Z, hidden, known.folds, known.calm)
        if keys is not None:
            told = told.once_a_key(keys[told.row], known.simplest)
            known = replace(known, shares=told.shares(known.simplest))
        if boosted:
            known = with_tree_offers(known, rows, hidden, told, strangers)
    return known, axes


@dataclass(frozen=True, eq=False)
class SumsBlend:
    """Offers from sums, and what they leave of hidden rows; trees, where there are any."""

    offers: SumOffers
    sums: DeviceSums
    whole: Offered
    folds: Sequence[Array]
    """(offers, n, d) models of each fold, of the rows that it does not hide."""
    calm: Array
    """(n,) how much a row of each device counts as evidence: 1, or less for a loud one."""
    names: tuple[str, ...]
    shares: Array
    trees: tuple[tuple[int, SharedTrees], ...] = ()
    """Each with the offer that it is added to; -1 for none."""

    @property
    def simplest(self) -> int:
        """The place of one model for all among the offers."""
        return self.names.index("pooled")

    @property
    def linear(self) -> Array:
        """(offers,) the share of each linear model, also as what trees are added to."""
        many = len(self.offers.names)
        found = self.shares[:many].copy()
        for share, (start, _) in zip(self.shares[many:], self.trees, strict=True):
            if start >= 0:
                found[start] += share
        return found

    @property
    def shared_trees(self) -> tuple[tuple[float, SharedTrees], ...]:
        """Trees that have a share, and which."""
        shares = self.shares[len(self.offers.names) :].tolist()
        pairs = zip(shares, self.trees, strict=True)
        return tuple((share, trees) for share, (_, trees) in pairs if share > 0)

    def blended(self, axes: PrincipalAxes) -> LinearBlend:
        """Everything mixed by its share."""
        linear = self.linear
        models = np.einsum("c,cnd->nd", linear, self.whole.models)
        centres = self.offers.centres
        sums = self.sums
        pooled = self.whole.models[self.simplest]
        near = self.whole.models[self.names.index("near")]
        return LinearBlend(
            axes.outside(models),
            self.shared_trees,
            self.names,
            self.shares,
            self.made_of(linear),
            self.whole.posterior,
            centres,
            self.population(axes),
            sums.missed(near[centres]),
            sums.residual(pooled) / sums.weight,
            self.offers.likeness(sums, self.whole),
        )

    def population(self, axes: PrincipalAxes) -> Population:
        """The priors of all offers, by the shares of what is linear."""
        d = self.offers.columns
        names = self.offers.names
        centre = np.zeros((len(names), d))
        Sigma = np.zeros((len(names), d, d))
        for k, learned in enumerate(self.whole.learned):
            here = learned.variances.centre
            centre[k, : len(here)] = here
            F = self.offers.kind(names[k]).random
            Sigma[k][F[:, None], F] = learned.Sigma
        noise = [learned.variances.noise for learned in self.whole.learned]
        near = self.whole.models[names.index("near")]
        return Population(
            names=np.array(names),
            shares=self.linear,
            centre=centre,
            Sigma=Sigma,
            usual=np.array([each.usual for each in noise]),
            alike=np.array([each.alike for each in noise]),
            centres=near[self.offers.centres],
            axes=np.zeros((0, 0)) if axes.axes is None else axes.axes,
        )

    def made_of(self, linear: Array) -> Array:
        """(n, 3) own rows, fleet, neighbours: what decides each model, offers by their shares."""
        k = self.names.index("near")
        own = np.einsum("c,cn->n", linear, self.whole.own)
        close = linear[k] * (1.0 - self.whole.own[k])
        # trees of labels have no linear part, and see the whole fleet
        return np.stack([own, 1.0 - own - close, close], axis=1)


def blend_of_sums(
    parts: Sequence[DeviceSums],
    folds: Sequence[Hidden],
    *,
    level: bool,
    seed: int,
    never: int | None = None,
    panel: int = PANEL,
) -> SumsBlend:
    """The rule without trees, from sums over each part of the rows: no row is needed.

    `never` is the part of rows that no fold hides, of devices with few.
    """
    sums = total(parts)
    n, d = sums.product.shape
    some = some_centres(n, seed, panel)
    offers = SumOffers(d, level, some_centres(n, seed), some)
    whole = offers.fit(sums)
    noise = whole.learned[offers.names.index("diagonal")].variances.noise
    calm = np.minimum(noise.each / noise.usual, 1.0)
    models = []
    crossed = np.zeros((len(offers.names), len(offers.names)))
    rows = 0.0
    for fold in folds:
        left = total([parts[k] for k in fold.learn])
        found = offers.fit(left, whole.learned).models
        models.append(found)
        hidden = total([parts[k] for k in fold.judge]).weighed(calm)
        crossed += hidden.crossed(found)
        rows += float(hidden.weight.sum())
    if never is not None:  # devices with too few rows to hide any
        others = total([part for k, part in enumerate(parts) if k != never])
        alone = calm * (others.weight == 0)
        seen = parts[never].weighed(alone)
        crossed += seen.crossed(whole.models) + whole.optimism(alone / noise.each)
        rows += float(seen.weight.sum())
    shares = shares_of(crossed, rows, offers.names.index("pooled"))
    return SumsBlend(offers, sums, whole, models, calm, offers.names, shares)


def some_centres(n: int, seed: int, most: int = CENTRES) -> IntArray:
    """The devices that may be centres: all, or so many drawn by the seed."""
    if n <= most:
        return np.arange(n)
    place = stream(seed, "centres")
    drawn = distinct(place, np.zeros(1, dtype=np.int64), np.array([n]), most)
    return np.sort(drawn[0])


def with_tree_offers(
    known: SumsBlend,
    rows: Devices,
    hidden: HiddenRows,
    told: HiddenEvidence,
    strangers: bool = False,
) -> SumsBlend:
    """Trees as further offers: of labels, and of what some offers leave of hidden rows. Those that
    the first rows hidden show no use for are left out.
    """
    names = known.names
    learned = [np.isin(hidden.part, fold.learn) for fold in hidden.folds]

    def left(fold: int, start: int) -> Array:
        """What is left of the rows that this fold hides."""
        mine = told.at(fold)
        rest = rows.y[mine.row] if start < 0 else mine.left[:, start]
        if start >= 0 and learned[fold][told.row].sum() < BOOSTED / 2:
            return np.asarray(rest)
        trees = told.grown(rows, start, learned[fold], strangers)
        return np.asarray(rest - trees.predict(rows.X[mine.row], rows.owner[mine.row]))

    starts = [-1, *(names.index(name) for name in LEFT_OVER if name in names)]
    tried = np.column_stack([left(0, start) for start in starts])
    earned = told.at(0).also(tried).shares(known.simplest)[len(names) :] > 0
    kept = [start for start, yes in zip(starts, earned, strict=True) if yes]
    if not kept:
        return known
    found = [tried[:, earned]]
    for fold in range(1, len(hidden.folds)):
        if sum(map(len, found)) < ENOUGH:
            found.append(np.column_stack([left(fold, start) for start in kept]))
    judged = told.first(len(found)).also(np.concatenate(found))
    titles = ("trees" if k < 0 else f"{names[k]} + trees" for k in kept)
    everything = np.ones(len(rows.y), dtype=bool)
    return replace(
        known,
        names=(*names, *titles),
        shares=judged.shares(known.simplest),
        trees=tuple((k, told.grown(rows, k, everything, strangers)) for k in kept),
    )
