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
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from persfl.devices import Devices
from persfl.learners.shared_trees import SharedTrees
from persfl.methods.mixed.device_sums import DeviceSums, total
from persfl.methods.mixed.grown_trees import grow
from persfl.methods.mixed.hidden_rows import PARTS, Hidden, HiddenRows, hidden_rows
from persfl.methods.mixed.offers_from_sums import Learned, Offered, SumOffers
from persfl.methods.mixed.principal_axes import axes_of
from persfl.methods.mixed.stacking import shares_of
from persfl.seeds import distinct, stream
from persfl.types import Array, IntArray

CENTRES = 1000  # devices at most that may be the centre of another; time and memory are linear
BOOSTED = 200  # rows; fewer are not boosted
LEAST = (
    0.01  # share below which trees are not worth their time, on the first rows hidden
)
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
    learned: tuple[Learned, ...]
    centre_error: (
        Array  # (n, centres) mean squared errors of centres' models on a device's rows
    )
    fleet_error: Array  # (n,) and of one model for all


@dataclass(frozen=True, eq=False)
class _Evidence:
    """Hidden rows, all folds behind each other: which they are, what each offer leaves of them."""

    fold: IntArray
    row: IntArray
    left: Array  # (hidden rows, offers)

    def at(self, which: NDArray[np.bool_]) -> _Evidence:
        """These rows alone."""
        return _Evidence(self.fold[which], self.row[which], self.left[which])

    def also(self, left: Array) -> _Evidence:
        """With one more offer, or several."""
        return _Evidence(self.fold, self.row, np.column_stack([self.left, left]))


def linear_blend(
    rows: Devices,
    *,
    level: bool,
    seed: int,
    ordered: bool = False,
    blocks: Array | None = None,
    trees: bool = True,
) -> LinearBlend:
    """Blend the models of these devices.

    >>> from persfl.sources import clustered_regression
    >>> rows = clustered_regression(n=20, clusters=2, rows=8, features=3, seed=0)
    >>> found = linear_blend(rows, level=True, seed=0)
    >>> found.models.shape, round(float(found.shares.sum()), 6)
    ((20, 4), 1.0)
    """
    n = len(rows)
    axes = axes_of(rows, level)
    Z = axes.inside(rows.X)
    hidden = hidden_rows(rows, seed, ordered=ordered, blocks=blocks)
    parts = [
        DeviceSums.of(Z, rows.y, rows.weight * (hidden.part == k), rows.start)
        for k in range(PARTS)
    ]
    centres = some_centres(n, seed)
    offers = SumOffers(Z.shape[1], level, centres)
    whole = offers.fit(total(parts))
    folds = [
        offers.fit(total([parts[k] for k in f.learn]), whole.learned)
        for f in hidden.folds
    ]
    told = _told(rows, Z, hidden, [fold.models for fold in folds])
    noise = whole.learned[offers.names.index("diagonal")].variances.noise
    calm = np.minimum(noise.each / noise.usual, 1.0)[rows.owner]
    names = offers.names
    grown: list[tuple[int, SharedTrees]] = []
    if trees and len(rows.y) >= BOOSTED:
        told, grown, more = _boosted(rows, hidden.folds, hidden.part, told, names, calm)
        names = (*names, *more)
    shares = _shares(rows, told, calm)
    linear = shares[: len(offers.names)].copy()
    for (start, _), share in zip(grown, shares[len(linear) :], strict=True):
        if start >= 0:  # what these trees are added to
            linear[start] += share
    models = np.einsum("c,cnd->nd", linear, whole.models)
    sums = total(parts)
    fleet = whole.models[names.index("pooled")]
    return LinearBlend(
        axes.outside(models),
        tuple(
            (float(share), each)
            for share, (_, each) in zip(shares[len(linear) :], grown, strict=True)
            if share > 0
        ),
        names,
        shares,
        _made_of(names, shares, linear, whole),
        whole.posterior,
        centres,
        whole.learned,
        sums.missed(whole.models[names.index("near")][centres]),
        sums.residual(fleet) / sums.weight,
    )


def some_centres(n: int, seed: int) -> IntArray:
    """The devices that may be centres: all, or so many drawn by the seed."""
    if n <= CENTRES:
        return np.arange(n)
    place = stream(seed, "centres")
    drawn = distinct(place, np.zeros(1, dtype=np.int64), np.array([n]), CENTRES)
    return np.sort(drawn[0])


def _told(
    rows: Devices, Z: Array, hidden: HiddenRows, models: Sequence[Array]
) -> _Evidence:
    """What linear offers leave of the rows that each fold hides."""
    fold = []
    row = []
    left = []
    for k, (each, offered) in enumerate(zip(hidden.folds, models, strict=True)):
        which = np.flatnonzero(np.isin(hidden.part, each.judge))
        said = np.einsum("rj,crj->rc", Z[which], offered[:, rows.owner[which]])
        fold.append(np.full(len(which), k))
        row.append(which)
        left.append(rows.y[which, None] - said)
    return _Evidence(np.concatenate(fold), np.concatenate(row), np.concatenate(left))


def _shares(rows: Devices, told: _Evidence, calm: Array) -> Array:
    weight = (rows.weight * calm)[told.row]
    crossed = (told.left * weight[:, None]).T @ told.left
    return shares_of(crossed, float(weight.sum()))


def _boosted(
    rows: Devices,
    folds: Sequence[Hidden],
    part: IntArray,
    told: _Evidence,
    names: Sequence[str],
    calm: Array,
) -> tuple[_Evidence, list[tuple[int, SharedTrees]], list[str]]:
    """Trees as offers: the evidence with them, and each with the offer that it is added to (-1:
    none). Where the first rows hidden show no use for them there are none.
    """
    starts = [-1, *(names.index(name) for name in LEFT_OVER if name in names)]
    learned = [np.isin(part, fold.learn) for fold in folds]
    everything = np.ones(len(part), dtype=bool)

    def grown(start: int, learn: NDArray[np.bool_]) -> SharedTrees:
        """By these rows: of their labels, or of what an offer leaves of those that were hidden."""
        if start < 0:
            return grow(rows, np.flatnonzero(learn), rows.y[learn])
        known = learn[told.row]
        return grow(rows, told.row[known], told.left[known, start])

    def left(fold: int, start: int) -> Array:
        """What is left of the rows that this fold hides."""
        mine = told.fold == fold
        rest = rows.y[told.row[mine]] if start < 0 else told.left[mine, start]
        if start >= 0 and learned[fold][told.row].sum() < BOOSTED / 2:
            return np.asarray(rest)
        trees = grown(start, learned[fold])
        which = told.row[mine]
        return np.asarray(rest - trees.predict(rows.X[which], rows.owner[which]))

    # the first rows hidden show which of them earn their time
    first = told.at(told.fold == 0)
    tried = np.column_stack([left(0, start) for start in starts])
    earned = _shares(rows, first.also(tried), calm)[len(names) :] >= LEAST
    kept = [start for start, yes in zip(starts, earned, strict=True) if yes]
    if not kept:
        return told, [], []
    found = np.empty((len(told.row), len(kept)))
    found[told.fold == 0] = tried[:, earned]
    for fold in range(1, len(folds)):
        for k, start in enumerate(kept):
            found[told.fold == fold, k] = left(fold, start)
    titles = ["trees" if k < 0 else f"{names[k]} + trees" for k in kept]
    return told.also(found), [(k, grown(k, everything)) for k in kept], titles


def _made_of(
    names: Sequence[str], shares: Array, linear: Array, whole: Offered
) -> Array:
    """(n, 3) own rows, fleet, neighbours: what decides each model, offers by their shares."""
    k = names.index("near")
    own = np.einsum("c,cn->n", linear, whole.own)
    close = linear[k] * (1.0 - whole.own[k])
    # trees of labels have no linear part, and see the whole fleet
    fleet = 1.0 - own - close
    return np.stack([own, fleet, close], axis=1)
