"""Blend for models that are refitted: a few fits of the estimator, judged on hidden rows, and
mixed by shares with the linear rule.

1. The linear rule learns who is near whom, and its offers are made without each fifth of the rows.
2. The estimator is fitted by every recipe (`recipes`) without the first fifth.
3. The recipes that earn most there are fitted without the second fifth too, and to all rows.
4. One set of shares for the fleet, by least squares over those two fifths (`stacking`); of numbers
   the linear offers have shares beside them.

**Cost**, in fits of all rows, of recipes with these `price`s:

    sum of those tried, without a fold  +  sum of those kept, without another and of all  <=  PURSE

plus the linear rule once (of classes at most three times), so that by the clock it is ten at most.
No clock is read, so the same rows and seed give the same models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from persfl.devices import Devices
from persfl.evaluation.row_order import RowOrder
from persfl.learners.fleet_mix import FleetMix, nobody
from persfl.methods.mixed.hidden_rows import PARTS
from persfl.methods.mixed.stacking import shares_of
from persfl.methods.refitted.bank_fits import BankFits
from persfl.methods.refitted.linear_view import LinearView, fold_says, linear_view
from persfl.methods.refitted.near_groups import answers_of, near_groups
from persfl.methods.refitted.recipes import (
    DEAR,
    RECIPES,
    Recipe,
    fixed_rows,
    takes_leftovers,
)
from persfl.types import Array, Learner

PURSE = 8.0  # fits of all rows; with the linear rule and what prices do not know, ten
TRIES = 2  # folds that judge fits; linear offers have five, since their fits are sums
LEAST = 0.01  # share on the first fold below which a recipe is not worth more fits
_FOLD = 1 - 1 / PARTS  # of all rows, that are left without a fold
# which of own rows, the fleet and neighbours a recipe is; leftovers are what their offer is
_SORT = {"own": 0, "all": 1, "groups": 2}


class RefitBlend(NamedTuple):
    """What comes out: `names` and `shares` of all offers, linear ones first. `made_of` (n, 3): how
    much own rows, the fleet and neighbours are of each model.
    """

    models: FleetMix
    names: tuple[str, ...]
    shares: Array
    made_of: Array
    view: LinearView


def refit_blend(
    rows: Devices,
    learner: Learner,
    *,
    classes: int = 0,
    seed: int = 0,
    order: RowOrder | None = None,
) -> RefitBlend:
    """Blend the models of these devices.

    >>> from persfl.learners import Tree
    >>> from persfl.sources import clustered_regression
    >>> rows = clustered_regression(n=10, clusters=2, rows=20, features=2, seed=0)
    >>> found = refit_blend(rows, Tree(2))
    >>> len(found.models), round(float(found.shares.sum()), 6)
    (10, 1.0)
    """
    order = order or RowOrder()
    view = linear_view(rows, classes=classes, seed=seed, order=order)
    answers = np.column_stack([answers_of(known) for known in view.known])
    groups = near_groups(answers, rows.counts, seed)
    fits = BankFits(rows, learner, classes, seed, view, groups)
    folds = _folds(fits, order.ordered)
    if not folds:  # too few rows to hide any
        return _mixed(fits, RECIPES[:1], _certain(fits))
    tried = _tried(fits)
    first = [fits.left(recipe, folds[0]) for recipe in tried]
    earned = _shares(fits, folds[:1], [first])[-len(tried) :]
    kept = _kept(fits, tried, earned, len(folds))
    left = [[first[k] for k in kept]]
    recipes = [tried[k] for k in kept]
    left += [[fits.left(recipe, fold) for recipe in recipes] for fold in folds[1:]]
    return _mixed(fits, recipes, _shares(fits, folds, left))


def _folds(fits: BankFits, ordered: bool) -> list[int]:
    """The folds that judge: of ordered rows the last ones, which have leftovers to learn from."""
    many = range(len(fits.view.hidden.folds))
    judging = [fold for fold in many if fits.judges(fold)]
    return (judging[::-1] if ordered else judging)[:TRIES]


def _certain(fits: BankFits) -> Array:
    """The whole share for one fit to all rows."""
    linear = 0 if fits.classes else len(fits.view.names)
    return np.append(np.zeros(linear), 1.0)


def _tried(fits: BankFits) -> list[Recipe]:
    """The recipes that make sense here and do not cost too much."""
    learner = fits.learner
    leftovers = not fits.classes and takes_leftovers(learner, fits.rows.features)
    found = []
    for recipe in RECIPES:
        alone = recipe.whom != "groups" or int(fits.groups.max()) > 0
        if alone and (leftovers or not recipe.rest) and _price(fits, recipe) <= DEAR:
            found.append(recipe)
    return found or list(RECIPES[:1])


def _price(fits: BankFits, recipe: Recipe, share: float = 1.0) -> float:
    """Of a recipe fitted to such a share of the rows."""
    rows = fits.rows
    many = int(fits.whose(recipe).max()) + 1
    fixed = fixed_rows(fits.learner)
    labels = len(fits.view.known)
    return recipe.price(len(rows.y), many, rows.features, fixed, labels, share)


def _kept(
    fits: BankFits, tried: Sequence[Recipe], earned: Array, folds: int
) -> list[int]:
    """Those that earned most, as far as the purse goes; of classes always the one of all rows,
    where no linear offer is the simplest.
    """
    left = PURSE - sum(_price(fits, recipe, _FOLD) for recipe in tried)
    order = np.argsort(-earned, kind="stable").tolist()
    if fits.classes:
        order = [0, *(k for k in order if k)]
    kept = []
    for k in order:
        hidden = (folds - 1) * _price(fits, tried[k], _FOLD)
        price = hidden + _price(fits, tried[k])
        needed = bool(fits.classes) and k == 0
        if needed or (earned[k] >= LEAST and price <= left):
            kept.append(k)
            left -= price
    return sorted(kept)


def _shares(
    fits: BankFits, folds: Sequence[int], left: Sequence[Sequence[Array]]
) -> Array:
    """Of linear offers (of numbers) and recipes, by what they leave of the rows that folds hide.

    Of classes that is the chance of each class beside 1 or 0 (Brier): unlike the log loss it stays
    finite where a tree gives a class no chance.
    """
    linear = [] if fits.classes else list(fits.view.names)
    many = len(linear) + len(left[0])
    crossed = np.zeros((many, many))
    rows = 0.0
    for fold, mine in zip(folds, left, strict=True):
        at = fits.hidden(fold)
        owner = fits.rows.owner[at]
        weight = fits.rows.weight[at] * fits.view.calm[owner]
        every = list(mine)
        if linear:
            models = fits.view.folds[fold][:, : len(linear)]
            said = fold_says(models, fits.rows.X[at], owner)[:, 0]
            every = [*(fits.rows.y[at, None] - said).T[:, :, None], *mine]
        stacked = np.stack(every)
        crossed += np.einsum("arl,brl,r->ab", stacked, stacked, weight, optimize=True)
        rows += float(weight.sum())
    return shares_of(crossed, rows, linear.index("pooled") if linear else 0)


def _mixed(fits: BankFits, recipes: Sequence[Recipe], shares: Array) -> RefitBlend:
    """Everything fitted to all rows, and mixed by its share."""
    view = fits.view
    linear = () if fits.classes else view.names
    by_offer = shares[: len(linear)].copy()
    sort = np.zeros(3)
    banks = []
    for recipe, share in zip(recipes, shares[len(linear) :].tolist(), strict=True):
        if share <= 0:
            continue
        banks.append((share, fits.fitted(recipe)))
        if recipe.rest:
            by_offer[linear.index(recipe.rest)] += share
        else:
            sort[_SORT[recipe.whom]] += share
    n = len(fits.rows)
    vectors = None
    made_of = np.tile(sort, (n, 1))
    if linear:
        vectors = np.einsum("c,cnf->nf", by_offer, view.models[0, : len(linear)])
        made_of += view.known[0].made_of(by_offer)
        made_of[:, 1] = 1.0 - made_of[:, 0] - made_of[:, 2]
    models = FleetMix(vectors, tuple(banks), nobody(n, fits.rows.features))
    names = (*linear, *(recipe.name for recipe in recipes))
    return RefitBlend(models, names, shares, made_of, view)
