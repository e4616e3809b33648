"""Offers for networks, and for any other learner whose models are vectors that take gradient steps.

Starting points are the module's own weights, one model for the other devices ("pooled"), the
average over the nearest of them ("alike"), and what neighbours answer from there; from each, the
device takes own steps. All that a peer is asked for are gradients and steps, and whether steps of a
length lower its loss.

Models on the way from one start can be averaged: their mean predicts as well as the mean of their
predictions does. Models from different starts cannot. So a device's model is a list of (share,
network), one per start at most, and predictions are mixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from persfl.devices import Devices
from persfl.methods.blend.blend_settings import USUAL, BlendSettings, DescentSettings
from persfl.methods.blend.budget import SHORTER, Budget, some_of
from persfl.methods.blend.evidence import shares_by_loss
from persfl.methods.blend.folds import TargetRows
from persfl.methods.blend.forms import Form, Numbers
from persfl.methods.blend.mixture import placed
from persfl.methods.blend.neighbours import Neighbours
from persfl.methods.blend.offers.near_steps import nearest_by_slopes
from persfl.methods.blend.question_base import Question
from persfl.methods.blend.questions import (
    Falls,
    GradientSteps,
    JudgeOffers,
    Mix,
    OwnRows,
    Slopes,
    Weigh,
    Weight,
)
from persfl.methods.blend.search import Search, first_losses, neighbours, unpaid
from persfl.methods.blend.site import Bundle, Group, Starts
from persfl.methods.blend.vector_rows import VectorPeers, VectorTargets
from persfl.methods.blend.views import ViewSettings
from persfl.proposers import GradientStep
from persfl.seeds import stream
from persfl.traits import traits_of
from persfl.types import Array, Differentiable, IntArray

STARTS = ("pooled", "alike", "neighbours")
Mixed = list[tuple[float, Array]]


class DescentSpending(NamedTuple):
    """What a group's budget pays; all its questions are about gradient steps."""

    fleet: int  # devices that tell what the fleet is like
    peers: int  # that a copy asks in a round of the search
    near: int  # questions of a copy to the nearest

    @staticmethod
    def by(
        budget: Budget, known: int, most: int, chosen: DescentSettings
    ) -> DescentSpending:
        """Every target bears its part of the averaged gradients; its copies share what is left."""
        # with two gradients that tell who is alike, and how long steps may be
        each = chosen.pool_steps + 2 + chosen.paces
        fleet = budget.fleet(min(known, most), each)
        if not fleet:
            return DescentSpending(0, 0, 0)
        left = int(budget.left(fleet, each))
        # the first round asks twice as many
        rounds = chosen.rounds + 1
        peers = min(chosen.peers, left // 2 // rounds, known // 2 or 1)
        return DescentSpending(fleet, peers, left - peers * rounds)


@dataclass(frozen=True, eq=False)
class Descent:
    """See `persfl.methods.blend.offers.Offers`."""

    learner: Differentiable
    features: int
    classes: int = 0
    settings: BlendSettings = USUAL
    unit: ClassVar[int] = SHORTER
    views: ClassVar[tuple[str, ...]] = ("shared",)
    questions: ClassVar[tuple[type[Question], ...]] = (
        Weight, GradientSteps, Slopes, Falls, OwnRows, Weigh, JudgeOffers, Mix,
    )  # fmt: skip
    proposer: ClassVar[None] = None
    hides: ClassVar[bool] = False
    extra: ClassVar[int] = 0

    @property
    def size(self) -> int:
        """Of a model."""
        return self.learner.size(self.features)

    @property
    def _chosen(self) -> DescentSettings:
        return self.settings.descent

    @property
    def rate(self) -> float:
        """Of Adam: the learner's own, where it has one."""
        return float(getattr(self.learner, "rate", self._chosen.rate))

    def path(self, view: str, number: int) -> tuple[Any, ...]:
        """Where a group's random numbers are drawn."""
        return ("blend", number)

    def names(self) -> list[str]:
        """What offers are called: the start, "-seen" where unseen classes are left out, the
        number of own steps.
        """
        chosen = self._chosen
        found = [f"own {steps}" for steps in chosen.own_steps]
        seen = self.classes and traits_of(self.learner).loss == "cross_entropy"
        for name in STARTS:
            found += [f"{name} {steps}" for steps in chosen.tuning_steps]
            if seen:
                found += [f"{name}-seen {steps}" for steps in chosen.tuning_steps[1:]]
        return found

    def start_forms(self) -> Mapping[str, Form]:
        """What `starts` holds."""
        each = Numbers(("copies", "size"))
        return {"pooled": Numbers(("size",)), "alike": each, "neighbours": each}

    def starts(self, bundle: Bundle) -> list[tuple[Starts, Search]]:
        """What offers are made from, asked of the peers; the module's own weights where it is not
        paid.
        """
        groups = bundle.groups
        chosen = self._chosen
        most = self.settings.fleet
        spending = [
            DescentSpending.by(each.budget, each.peers, most, chosen) for each in groups
        ]
        first = [group.begin() for group in groups]
        pooled = [each[0] for each in first]
        paces = [chosen.longest] * len(groups)
        near: dict[int, IntArray] = {}
        for h in [h for h, spend in enumerate(spending) if spend.fleet]:
            group = groups[h]
            many = spending[h].fleet
            who = _drawn(group, many, "together")
            pooled[h] = group.pooled_descent(who, chosen.pool_steps, self.rate)
            at = (first[h][0], pooled[h])
            near[h] = nearest_by_slopes(group, at, _drawn(group, many, "alike"))
            who = _drawn(group, many, "pace")[: chosen.paced]
            paces[h] = pace(group, pooled[h], who, chosen)
        alike, steps = self._alike(bundle, spending, first, near)
        found: list[tuple[Starts, Search]] = []
        for h, group in enumerate(groups):
            search = self._search(group, spending[h].peers, alike[h], paces[h])
            missing = {
                "pooled": not spending[h].fleet,
                "alike": not steps[h],
                "neighbours": not spending[h].peers,
            }
            starts = {
                "pooled": pooled[h],
                "alike": alike[h],
                "neighbours": search.models,
            }
            found.append((starts, search._replace(missing=unpaid(missing))))
        return found

    def _alike(
        self,
        bundle: Bundle,
        spending: Sequence[DescentSpending],
        first: Sequence[Array],
        near: Mapping[int, IntArray],
    ) -> tuple[list[Array], list[int]]:
        """Per group the average over the nearest, and how many steps led there; groups that can
        pay as many go together.
        """
        chosen = self._chosen
        alike = list(first)
        steps = [0] * len(first)
        for h, each in near.items():
            steps[h] = min(chosen.near_steps, spending[h].near // each.shape[1])
        rate = chosen.faster * self.rate
        for count in sorted(set(steps) - {0}):
            these = [h for h in near if steps[h] == count]
            start = np.concatenate([first[h] for h in these])
            whom = [near[h] for h in these]
            found = bundle.near_descent(these, whom, start, count, rate)
            sound = np.isfinite(found).all(axis=1, keepdims=True)
            ends = np.cumsum([len(first[h]) for h in these])[:-1]
            parts = np.split(np.where(sound, found, start), ends)
            for h, part in zip(these, parts, strict=True):
                alike[h] = part
        return alike, steps

    def _search(self, group: Group, peers: int, start: Array, step: float) -> Search:
        """The ordinary search for neighbours, from the average over the nearest."""
        chosen = self._chosen
        noise = None
        if not traits_of(self.learner).chances:
            # a loss of 0 may be what somebody tells: nothing is measured by it
            noise = np.maximum(first_losses(group, start), 1e-12)
        weight = group.own(OwnRows(look=group.look))["weight"]
        rule = Neighbours(peers, group.peers, weight, noise, worse=chosen.worse)
        fleet = group.fleet(GradientStep(step, steps=chosen.short), start)
        return neighbours(group, fleet, rule, chosen.rounds if peers else 1)

    def peers(self, rows: Devices, look: ViewSettings) -> VectorPeers:
        """Devices that answer."""
        return VectorPeers(self.learner, rows)

    def targets(self, own: TargetRows, look: ViewSettings) -> VectorTargets:
        """Devices that judge."""
        return VectorTargets(self, own)

    def shares(
        self, losses: Array, rows: Array, paid: Sequence[int], sure: float
    ) -> Array:
        """(devices, offers) by the evidence; nothing of what is not paid."""
        found = np.zeros(losses.shape)
        known = np.ascontiguousarray(losses[:, list(paid)])
        found[:, list(paid)] = shares_by_loss(known, rows, relative=not self.classes)
        return found

    def mixed(self, offers: Sequence[Array], mix: Array) -> list[Mixed]:
        """Per target its offers, averaged along the way from each start, listed across starts."""
        return [
            self._mixed([models[t] for models in offers], shares)
            for t, shares in enumerate(mix.tolist())
        ]

    def _mixed(self, offers: Sequence[Array], mix: Sequence[float]) -> Mixed:
        ways: dict[str, Mixed] = {}
        for name, model, share in zip(self.names(), offers, mix, strict=True):
            if share > 0:
                start = name.split()[0].removesuffix("-seen")
                ways.setdefault(start, []).append((share, model))
        found = []
        for way in ways.values():
            total = sum(share for share, _ in way)
            mean = sum((share / total) * model for share, model in way)
            found.append((total, np.asarray(mean, dtype=way[0][1].dtype)))
        return found

    def models(self, n: int, parts: Sequence[tuple[IntArray, Any]]) -> list[Any]:
        """Each at its device's place; None for the others."""
        return placed(n, parts)


def _drawn(group: Group, many: int, what: str) -> IntArray:
    return some_of(group.peers, many, stream(group.seed, what))


def pace(group: Group, model: Array, who: IntArray, chosen: DescentSettings) -> float:
    """The longest of 1, 1/4, 1/16 ... such that so many plain steps from this model lower the own
    loss of nine devices in ten, or, of three or more, of all but one.
    """
    found = chosen.longest
    for _ in range(chosen.paces):
        question = Falls(look=group.look, model=model, step=found, steps=chosen.short)
        falls = group.ask(question, who)["falls"]
        if is_agreed(falls[np.isfinite(falls)] > 0, chosen.falls):
            break
        found /= 4
    return found


def is_agreed(votes: NDArray[np.bool_], share: float) -> bool:
    """Whether so many say yes; one no of three or more is never enough against it: below ten,
    one device could else slow all others for good.

    >>> [is_agreed(np.arange(n) > 0, 0.9) for n in (1, 2, 3, 9)]
    [False, False, True, True]
    """
    many = len(votes)
    yes = int(votes.sum())
    return many > 0 and (yes >= share * many or (many >= 3 and yes == many - 1))
