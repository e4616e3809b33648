"""Blend for classes: offers, judged on rows that they have not seen, and mixed by a log pool.

1. Offers are linear models, pulled toward the fleet's or toward neighbours' (`class_offers`).
2. With enough rows, trees are grown for the whole fleet, with the device as a category and without
   (`class_trees`).
3. All of it is done again without some rows, hidden at all devices at once (`hidden_rows`).
4. One set of shares for the fleet, by the log loss of those hidden rows (`log_pool`).

The pool of linear offers is one vector per device; trees are kept beside it, with their share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from persfl.devices import Devices
from persfl.evaluation.row_order import RowOrder
from persfl.learners.linear import Linear
from persfl.learners.shared_trees import ClassTrees
from persfl.methods.mixed.class_fits import chances, log_chances
from persfl.methods.mixed.class_hidden import JudgedRows, by_design, judged_rows
from persfl.methods.mixed.class_likeness import class_likeness, judging
from persfl.methods.mixed.class_near import CENTRES
from persfl.methods.mixed.class_offers import ClassOffers
from persfl.methods.mixed.class_rows import ClassRows, all_rows, device_rows, with_level
from persfl.methods.mixed.class_trees import judged_trees
from persfl.methods.mixed.grown_trees import CATEGORIES
from persfl.methods.mixed.hidden_rows import hidden_rows
from persfl.methods.mixed.likeness import Likeness
from persfl.methods.mixed.linear_rule import BOOSTED
from persfl.methods.mixed.log_pool import pool_shares
from persfl.methods.mixed.panel_draw import some_centres
from persfl.types import Array, IntArray

# of the belief in offers this is for one model for all, the rest for each alike: fleets of few rows
# cannot tell which personal models are good
FLEET = 0.6
TREES = ("trees", "trees without the device")


@dataclass(frozen=True, eq=False)
class ClassRule:
    """What comes out: `models` (n, size) in the learner's layout; `trees`, whose log chances are
    added by their shares, the last ones; `names` and `shares` of all offers.

    `made_of` (n, 3): how much own rows, the fleet and neighbours are of each model. `posterior`
    (n, centres): how likely each of `centres` is the centre of a device's model.
    `centre` (size,) is the fleet's model, `slopes` the variance of its slopes; `likeness` is who is
    like whom.
    """

    learner: Linear
    models: Array
    trees: tuple[ClassTrees, ...]
    names: tuple[str, ...]
    shares: Array
    made_of: Array
    posterior: Array
    centres: IntArray
    centre: Array
    slopes: float
    likeness: Likeness

    @property
    def shared_trees(self) -> list[tuple[float, ClassTrees]]:
        """Each with its share."""
        shares = self.shares[len(self.shares) - len(self.trees) :]
        return list(zip(shares.tolist(), self.trees, strict=True))

    def chances(self, X: Array, owner: IntArray) -> Array:
        """(rows, classes) of rows and their devices."""
        two = self.learner.kind == "logistic"
        W = self.models.reshape(len(self.models), self.learner.classes, -1)
        Z = with_level(X, self.learner.intercept)
        score = np.einsum("rd,rkd->rk", Z, W[owner])
        if two:
            score = np.column_stack([np.zeros(len(X)), score])
        for share, trees in self.shared_trees:
            score += share * trees.log_chances(X, owner)
        return chances(score)


def class_rule(
    rows: Devices,
    learner: Linear,
    *,
    classes: int,
    seed: int = 0,
    order: RowOrder | None = None,
    trees: bool = True,
    alike: bool = True,
) -> ClassRule:
    """Blend the models of these devices, `Linear("logistic")` or `Linear("multinomial")`. Without
    `alike`, and without trees, it is the rule of a federation.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 2))
    >>> y = (X[:, 0] > 0).astype(float)
    >>> rows = Devices.grouped(X, y, np.arange(60) % 6, range(6))
    >>> found = class_rule(rows, Linear("logistic", intercept=True), classes=2)
    >>> found.models.shape, round(float(found.shares.sum()), 6)
    ((6, 3), 1.0)
    """
    n = len(rows)
    level = learner.intercept
    hidden = hidden_rows(rows, seed, order)
    learned = [np.isin(hidden.part, fold.learn) for fold in hidden.folds]
    shown = np.stack([np.ones(len(rows.y)), *learned]).astype(np.float64)
    whole = all_rows(rows, shown, classes=classes, level=level)
    design = by_design(rows, classes)
    judged = judged_rows(rows, hidden, learned, classes, design)
    centres = some_centres(n, seed, CENTRES)
    offers = ClassOffers(rows, whole, device_rows(rows, whole), level, centres, alike)
    names = []
    models = []
    log = []
    own = []
    near: list[Array] = []
    for name, found, decided in offers.each():
        names.append(name)
        models.append(found[0])
        own.append(decided)
        log.append(_log(whole, judged, found))
        if is_near(name):
            near = [sum(near) + found]
    told = np.stack(log, axis=1)
    likeness = _likeness(whole, judged, told, names, near, offers.centres, n)
    grown = []
    if trees and len(rows.y) >= BOOSTED:
        belief = pool_belief(len(names) + 1, design)
        # more devices than can be told apart: trees are not told them anyway
        kinds = TREES[:1] if n > CATEGORIES else TREES
        for name in kinds:
            with_device = name == TREES[0]
            tried = judged_trees(rows, learned, judged, told, belief, told=with_device)
            if tried is not None:
                grown.append(tried)
                names.append(name)
        if grown:
            said = np.stack([each.said for each in grown], axis=1)
            judged = judged.first(len(said))
            told = np.concatenate([told[: len(said)], said], axis=1)
    belief = pool_belief(len(names), design)
    shares = pool_shares(told, judged.label, judged.weight, belief)
    mixed = np.einsum("o,ondk->nkd", shares[: len(models)], np.stack(models))
    fleet = models[0][0].T
    return ClassRule(
        learner,
        class_vectors(learner, mixed),
        tuple(each.trees for each in grown),
        tuple(names),
        shares,
        parts_of_offers(names, shares, np.stack(own)),
        _posterior(offers, names, shares),
        offers.centres,
        class_vectors(learner, fleet[None])[0],
        offers.slopes,
        likeness,
    )


def is_near(name: str) -> bool:
    """Whether an offer comes from neighbours."""
    return name.startswith(("alike", "near"))


def _likeness(
    whole: ClassRows,
    judged: JudgedRows,
    told: Array,
    names: Sequence[str],
    near: Sequence[Array],
    centres: IntArray,
    n: int,
) -> Likeness:
    """Who is like whom, by models `near` (copies, n, d, classes), which are sums of offers."""
    nothing = Likeness(np.full((n, len(centres)), 0.5), 0.0, False)
    if not near or not len(judged.row):
        return nothing
    models = near[0] / sum(map(is_near, names))
    some = judging(judged.owner, n, len(centres))
    rows = judged.where(some)
    said = np.empty((len(rows.row), len(centres)))
    for k in range(len(models) - 1):
        mine = rows.fold == k
        Z = whole.Z[0, rows.row[mine]]
        label = rows.label[mine][:, None]
        for j, centre in enumerate(centres.tolist()):
            log = log_chances(Z @ models[k + 1, centre])
            said[mine, j] = np.take_along_axis(log, label, axis=1)[:, 0]
    close = [is_near(name) for name in names]
    return class_likeness(rows, told[some], close, said, centres, n)


def pool_belief(offers: int, design: float) -> Array:
    """(offers,) shares that are believed before any row tells; the first is one model for all.

    Where each device was given rows of all classes (see `by_design`), personal models are as good.
    """
    fleet = FLEET * design
    found = np.full(offers, (1.0 - fleet) / offers)
    found[0] += fleet
    return found


def parts_of_offers(names: Sequence[str], shares: Array, own: Array) -> Array:
    """(n, 3) own rows, fleet, neighbours: what decides each model, offers by their shares; `own`
    (linear offers, n) is the part of own rows. Trees see the whole fleet.
    """
    mine = shares[: len(own)] @ own
    close = np.zeros(own.shape[1])
    for name, share, part in zip(names, shares, own, strict=False):
        if is_near(name):
            close += share * (1.0 - part)
    return np.stack([mine, 1.0 - mine - close, close], axis=1)


def _posterior(offers: ClassOffers, names: Sequence[str], shares: Array) -> Array:
    """(n, centres) of both searches, each by the shares of what was made of it."""
    found = np.zeros((len(offers.rows), len(offers.centres)))
    of = dict(zip(names, shares.tolist(), strict=True))
    for name, each in offers.posteriors.items():
        made = [share for one, share in of.items() if one.partition(",")[0] == name]
        found += sum(made) * each
    return np.asarray(found / np.maximum(found.sum(axis=1, keepdims=True), 1e-300))


def class_vectors(learner: Linear, models: Array) -> Array:
    """Models (n, classes, d) in the learner's layout; two classes are told by their difference."""
    if learner.kind == "logistic":
        return np.asarray(models[:, 1] - models[:, 0])
    return np.asarray(models.reshape(len(models), -1))


def _log(whole: ClassRows, judged: JudgedRows, models: Array) -> Array:
    """(hidden rows, classes) log chances by models that have not seen them."""
    found = np.empty((len(judged.row), whole.Y.shape[-1]))
    for k in range(len(models) - 1):
        mine = judged.fold == k
        at = judged.row[mine]
        score = np.einsum(
            "rd,rdk->rk", whole.Z[0, at], models[k + 1, judged.owner[mine]]
        )
        found[mine] = log_chances(score)
    return found
