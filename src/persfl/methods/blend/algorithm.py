"""Blend: a device's model as a mix of what its own rows, the whole fleet and its neighbours offer.

Devices are dealt into at most eight groups. What a device is offered comes from devices of the
other groups, so its own folds can judge it honestly. One algorithm for all models and all places:
deal, fold, ask, offer, judge, share, record. What a family of models asks and offers is in
`persfl.methods.blend.offers`; where the rows are is the business of a `Site`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from persfl.methods.blend.mixture import BlendResult, groups_of, offer_start
from persfl.methods.blend.record import Record
from persfl.methods.blend.search import Search
from persfl.methods.blend.site import BlendSite, Bundle, Evidence, GroupPlan, Spreads
from persfl.methods.blend.views import ViewSettings
from persfl.seeds import stream
from persfl.types import Array, IntArray


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
