"""Blend for squared loss: offers, judged on rows that they have not seen, and mixed by shares.

1. Offers are mixed models of per-device sums (`offers_from_sums`).
2. With 100 rows, or with 50 where they clearly help, trees are grown for the whole fleet, with the
   device as a category (`shared_trees`): on the labels, and on what two of the offers leave of
   hidden rows.
3. All of it is done again without some rows, hidden at all devices at once (`hidden_rows`).
4. One set of shares for the fleet, by least squares over those hidden rows (`stacking`). Rows of a
   loud device count for as much less as they are noisier.

Offers of squared loss are linear in the model, so they are mixed into one vector per device; trees
are kept beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from persfl.devices import Devices
from persfl.evaluation.row_order import RowOrder
from persfl.methods.mixed import PANEL
from persfl.methods.mixed.device_sums import DeviceSums, total
from persfl.methods.mixed.hidden_evidence import HiddenEvidence
from persfl.methods.mixed.hidden_rows import Hidden, HiddenRows, hidden_rows
from persfl.methods.mixed.latest_rows import LatestRows
from persfl.methods.mixed.offers_from_sums import SumOffers
from persfl.methods.mixed.panel_draw import some_centres
from persfl.methods.mixed.principal_axes import PrincipalAxes, axes_of
from persfl.methods.mixed.stacking import shares_of
from persfl.methods.mixed.sums_blend import LinearBlend, SumsBlend
from persfl.types import Array

# of fewer rows trees are kept only where hidden rows are clear; of half as many, or of fewer rows
# than columns, never
BOOSTED = 100
CLEARLY = 2.0  # standard errors by which hidden rows are less wrong with trees
# hidden rows by which trees are judged; growing them takes most of the time
ENOUGH = 500
LEFT_OVER = ("level", "diagonal")  # offers whose leftovers are boosted


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
    latest: list[LatestRows] = []
    if level and order is not None and order.ordered and not order.found:
        learned = [np.isin(hidden.part, fold.learn) for fold in hidden.folds]
        latest = [
            LatestRows.of(Z, rows.y, rows.weight * learn, rows.start)
            for learn in (*learned, np.ones(len(Z), dtype=bool))
        ]
    known = blend_of_sums(
        parts, hidden.folds, level=level, seed=seed, panel=panel, latest=latest
    )
    keys = None if order is None else order.keys
    several = len(rows.y) >= BOOSTED
    few = BOOSTED / 2 <= len(rows.y) > rows.features
    boosted = trees and (several or few)
    if boosted or keys is not None:
        told = HiddenEvidence.of(rows, Z, hidden, known.folds, known.calm)
        if keys is not None:
            told = told.once_a_key(keys[told.row], known.simplest)
            known = replace(known, shares=told.shares(known.simplest))
        if boosted:
            least = 0.0 if several else CLEARLY
            known = with_tree_offers(known, rows, hidden, told, strangers, least)
    return known, axes


def blend_of_sums(
    parts: Sequence[DeviceSums],
    folds: Sequence[Hidden],
    *,
    level: bool,
    seed: int,
    never: int | None = None,
    panel: int = PANEL,
    latest: Sequence[LatestRows] = (),
) -> SumsBlend:
    """The rule without trees, from sums over each part of the rows: no row is needed.

    `never` is the part of rows that no fold hides, of devices with few. `latest` are those of what
    each fold learns from and, last, of all rows, where rows are in the order of time.
    """
    sums = total(parts)
    n, d = sums.product.shape
    some = some_centres(n, seed, panel)
    offers = SumOffers(d, level, some_centres(n, seed), some)
    whole = offers.fit(sums)
    names = offers.names
    if latest:
        whole = whole.going_on(latest[-1])
        names = offers.names_going_on
    noise = whole.learned[offers.names.index("diagonal")].variances.noise
    calm = np.minimum(noise.each / noise.usual, 1.0)
    models = []
    crossed = np.zeros((len(names), len(names)))
    rows = 0.0
    for at, fold in enumerate(folds):
        left = total([parts[k] for k in fold.learn])
        found = offers.fit(left, whole.learned).models
        if latest:
            found = np.concatenate([found, latest[at].moved(found)])
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
    shares = shares_of(crossed, rows, names.index("pooled"))
    return SumsBlend(offers, sums, whole, models, calm, names, shares)


def with_tree_offers(
    known: SumsBlend,
    rows: Devices,
    hidden: HiddenRows,
    told: HiddenEvidence,
    strangers: bool = False,
    least: float = 0.0,
) -> SumsBlend:
    """Trees as further offers: of labels, and of what some offers leave of hidden rows. Those that
    the first rows hidden show no use for are left out; all of them, where hidden rows are not
    `least` standard errors better with them.
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
    shares = judged.shares(known.simplest)
    if least and judged.better(shares, known.shares) < least:
        return known
    titles = ("trees" if k < 0 else f"{names[k]} + trees" for k in kept)
    everything = np.ones(len(rows.y), dtype=bool)
    return replace(
        known,
        names=(*names, *titles),
        shares=shares,
        trees=tuple((k, told.grown(rows, k, everything, strangers)) for k in kept),
    )
