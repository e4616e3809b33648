"""Blend: a device's model as a mix of what its own rows, the whole fleet and its neighbours offer.

Devices are dealt into at most eight groups. What a device is offered comes from devices of the
other groups, so its own folds can judge it honestly. One algorithm for all models and all places:
deal, fold, ask, offer, judge, share, record. What a family of models asks and offers is in
`persfl.methods.blend.offers`; where the rows are is the business of a `Site`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from persfl.devices import Devices
from persfl.evaluation.row_order import Fold, RowOrder
from persfl.evaluation.split import taken
from persfl.learners.linear import Linear
from persfl.methods.blend import blend_settings as chosen
from persfl.methods.blend.blend_settings import BlendSettings
from persfl.methods.blend.folds import Folding, HiddenFolding
from persfl.methods.blend.local_site import LocalSite
from persfl.methods.blend.mixture import BlendResult, groups_of, offer_start
from persfl.methods.blend.offers import offers_for
from persfl.methods.blend.record import Record
from persfl.methods.blend.search import Search
from persfl.methods.blend.site import BlendSite, Bundle, Evidence, GroupPlan, Spreads
from persfl.methods.blend.views import ViewSettings
from persfl.methods.mixed.linear_rule import LinearBlend, linear_blend
from persfl.methods.mixed.linear_stage import models_of, record
from persfl.methods.mixed.near_round import SHARED
from persfl.seeds import stream
from persfl.trust import Trust
from persfl.types import Array, IntArray, Learner


def blend(
    rows: Devices,
    learner: Learner,
    public: Array | None = None,
    *,
    seed: int = 0,
    budget: int = 640,
    ordered: bool = False,
    classes: int = 0,
    n_jobs: int | None = 1,
) -> BlendResult:
    """A model for every device; each asks others for at most `budget` refits (see `budget`).

    Linear models are mixed into one. Of others, `models[i]` is a list of (share, model). Models
    that are only refitted, such as trees, need `public` points. Linear models under squared loss
    ask nobody for refits: they come from sums over rows (see `persfl.methods.mixed`), here without
    trees beside them.

    >>> from persfl import Linear, Tree
    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(
    ...     n=40, clusters=2, rows=12, features=5, noise=0.5, seed=0
    ... )
    >>> found = blend(devices, Linear(intercept=True))
    >>> found.models.shape, bool(found.shares.sum(axis=1).round(6).max() == 1)
    ((40, 6), True)
    >>> trees = blend(devices, Tree(2), devices.X[:20], budget=1)
    >>> round(sum(share for share, _ in trees.models[0]), 6)
    1.0
    """
    if isinstance(learner, Linear) and learner.kind == "squared":
        level = learner.intercept
        order = RowOrder(ordered=ordered)
        found = linear_blend(rows, level=level, seed=seed, order=order, trees=False)
        return sums_result(found, level)
    site = local_site(
        rows,
        learner,
        public,
        seed=seed,
        ordered=ordered,
        classes=classes,
        n_jobs=n_jobs,
    )
    return blend_over(site, budget=budget)


def sums_result(found: LinearBlend, level: bool) -> BlendResult:
    """The same as a result of a blend."""
    n = len(found.models)
    round_ = record(found, Trust(n, np.arange(n)))
    return BlendResult(models_of(found, level), SHARED, found.made_of, (round_,))


def local_site(
    rows: Devices,
    learner: Learner,
    public: Array | None = None,
    *,
    seed: int = 0,
    ordered: bool = False,
    classes: int = 0,
    n_jobs: int | None = 1,
    compute: str | None = None,
    together: bool = True,
    judges: bool = True,
    settings: BlendSettings | None = None,
) -> LocalSite:
    """Devices whose rows are in this process; `together=False` never puts rows of two devices in
    one place, as a federation cannot. With `judges=False` there are no folds.
    """
    settings = settings or chosen.USUAL
    family = offers_for(
        learner, rows.features, classes=classes, public=public, settings=settings
    )
    folding = Folding(classes, ordered, seed, settings)
    if not judges:
        folding = HiddenFolding(classes, ordered, seed, settings)
    return LocalSite(
        rows, family, folding, n_jobs=n_jobs, compute=compute, together=together
    )


def hidden_sites(
    rows: Devices,
    learner: Learner,
    public: Array | None,
    folds: Sequence[Fold],
    *,
    seed: int = 0,
    classes: int = 0,
    n_jobs: int | None = 1,
    compute: str | None = None,
    settings: BlendSettings | None = None,
) -> Iterator[tuple[IntArray, LocalSite]]:
    """Who is there, and where they are asked, once without what each fold hides at all of them."""
    settings = settings or chosen.USUAL
    for learn, judge in folds:
        weight = rows.weight * learn
        known = np.bincount(rows.owner, weights=weight, minlength=len(rows)) > 0
        at = known[rows.owner]
        there = taken(rows, known)
        both = _weighed(there, there.weight * (learn | judge)[at])
        past = _weighed(there, there.weight * learn[at])
        family = offers_for(
            learner, rows.features, classes=classes, public=public, settings=settings
        )
        folding = HiddenFolding(
            classes, False, seed, settings, start=there.start, judge=judge[at]
        )
        site = LocalSite(
            both, family, folding, n_jobs=n_jobs, compute=compute, answered=past
        )
        yield np.flatnonzero(known), site


def _weighed(rows: Devices, weight: Array) -> Devices:
    return Devices(rows.X, rows.y, weight, rows.start, rows.ids)


@dataclass(frozen=True, eq=False)
class _Judged:
    """What was asked of a site, and what came of it."""

    plans: list[GroupPlan]
    found: list[tuple[Evidence, Search]]
    losses: Array
    """(n, offers) mean losses on rows that were hidden, ..."""
    behind: Array
    """... and (n,) the weight of those rows."""
    missing: set[str]
    record: Record
    told: Spreads


def _judged(site: BlendSite, names: Sequence[str], budget: int) -> _Judged:
    """Ask for all groups, and have the offers judged."""
    family = site.family
    n = site.n
    told = site.spreads()
    plans = _deal(site, told, budget)
    found = site.work(plans, _work)
    wide = len(names) // len(family.views)
    losses = np.full((n, len(names) + family.extra), np.inf)
    weight = np.zeros((len(family.views), n))
    record = Record(n)
    missing: set[str] = set()
    for plan, (evidence, search) in zip(plans, found, strict=True):
        view = family.views.index(plan.look.name)
        columns = slice(view * wide, view * wide + evidence.losses.shape[1])
        losses[plan.mine, columns] = evidence.losses
        weight[view, plan.mine] = evidence.weight
        missing |= search.missing
        record.add(plan, search.rounds, site.copies)
    behind = weight.min(axis=0)
    return _Judged(plans, found, losses, behind, missing, record, told)


def blend_over(
    site: BlendSite,
    *,
    budget: int = 640,
    hidden: Iterable[tuple[IntArray, BlendSite]] | None = None,
) -> BlendResult:
    """The same, wherever the devices are; everything that needs rows is asked of the site.

    Offers are judged by the site's own folds, or by those of the `hidden` sites, where some rows
    are hidden from everybody; each comes with the places of its devices.
    """
    family = site.family
    n = site.n
    names = [f"{view} {name}" for view in family.views for name in family.names()]
    asked = _judged(site, names, budget)
    plans = asked.plans
    found = asked.found
    missing = set(asked.missing)
    losses = asked.losses
    behind = asked.behind
    told = asked.told
    record = asked.record
    if hidden is not None:
        losses, behind, more = _by_hidden(asked, hidden, names, budget)
        missing |= more
    sure = 1.0
    if family.hides and site.classes:
        sure = float(behind.sum() / max(told.weight[behind > 0].sum(), 1e-12))
    paid = [k for k, name in enumerate(names) if offer_start(name) not in missing]
    mix = family.shares(losses, behind, paid, min(1.0, sure))
    mix *= np.isin(np.arange(n), site.targets)[:, None]
    models = site.mixed(plans, [evidence for evidence, _ in found], mix)
    listed = tuple(names[k] for k in paid)
    shares = np.ascontiguousarray(mix[:, paid])
    return BlendResult(models, listed, shares, record.rounds(shares, listed))


def _by_hidden(
    asked: _Judged,
    hidden: Iterable[tuple[IntArray, BlendSite]],
    names: Sequence[str],
    budget: int,
) -> tuple[Array, Array, set[str]]:
    """Mean losses over all that was hidden, the weight behind them, and what nobody could offer."""
    losses = np.zeros_like(asked.losses)
    behind = np.zeros_like(asked.behind)
    missing: set[str] = set()
    for there, site in hidden:
        one = _judged(site, names, budget)
        heard = one.behind > 0
        losses[there[heard]] += one.losses[heard] * one.behind[heard, None]
        behind[there] += one.behind
        missing |= one.missing
    return losses / np.where(behind > 0, behind, 1.0)[:, None], behind, missing


def _deal(site: BlendSite, told: Spreads, budget: int) -> list[GroupPlan]:
    """Groups of targets in every view, and who can be asked for each."""
    family = site.family
    n = site.n
    most = family.settings.groups
    group = groups_of(n, site.seed, most)
    wanted = np.isin(np.arange(n), site.targets)
    each = budget * family.unit / len(family.views)
    sizes = np.bincount(group[wanted], minlength=1)
    fewest = int(sizes[sizes > 0].min(initial=n))
    found = []
    for view in family.views:
        for h in range(group.max() + 1):
            mine = np.flatnonzero((group == h) & wanted)
            rest = np.flatnonzero(group != h)
            if not len(mine):
                continue
            look = ViewSettings.of(view, told.of(rest))
            place = stream(site.seed, *family.path(view, h)).integer()
            known = n - n // min(most, n)
            plan = GroupPlan(look, h, mine, rest, place, each, fewest, known, site.seed)
            found.append(plan)
    return found


def _work(bundle: Bundle) -> list[tuple[Evidence, Search]]:
    """Ask for these groups, and have the offers judged."""
    asked = bundle.groups[0].family.starts(bundle)
    evidence = bundle.evidence([starts for starts, _ in asked])
    return list(zip(evidence, [search for _, search in asked], strict=True))
