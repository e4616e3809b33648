"""Offers for linear models under other losses than the squared one: gradient steps.

Starting points are the device's own level, one model for the other devices (their steps averaged),
and what the likest of them answer: the average over the nearest ("alike"), by the angle between
their gradients and the device's at three models, and from there `Neighbours`. From each, the device
takes steps on its own rows, in two views of them; all offers are mixed into one vector in the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from persfl.devices import Devices
from persfl.learners.linear import Linear
from persfl.methods.blend.blend_settings import USUAL, BlendSettings, StepSettings
from persfl.methods.blend.budget import SHORTER, some_of
from persfl.methods.blend.evidence import shares_by_loss
from persfl.methods.blend.fixed_point import mean_of, settled
from persfl.methods.blend.folds import TargetRows
from persfl.methods.blend.forms import Form, Numbers
from persfl.methods.blend.linear_rows import LinearPeers, LinearTargets, mixed_offers
from persfl.methods.blend.neighbours import Neighbours
from persfl.methods.blend.offers.near_steps import near_average, nearest_by_steps
from persfl.methods.blend.offers.own_steps import (
    bold_step,
    step_for,
    step_names,
    step_offers,
)
from persfl.methods.blend.question_base import Question
from persfl.methods.blend.questions import (
    GradientSteps,
    JudgeOffers,
    Mix,
    OwnRows,
    Spread,
    Weigh,
)
from persfl.methods.blend.search import Search, neighbours, unpaid
from persfl.methods.blend.site import Bundle, Group, Starts
from persfl.methods.blend.views import VIEWS, ViewSettings
from persfl.proposers.gradient import GradientStep
from persfl.seeds import stream
from persfl.types import Array, IntArray


@dataclass(frozen=True, eq=False)
class StepOffers:
    """See `persfl.methods.blend.offers.Offers`."""

    learner: Linear
    features: int
    classes: int = 0
    settings: BlendSettings = USUAL
    unit: ClassVar[int] = SHORTER
    questions: ClassVar[tuple[type[Question], ...]] = (
        Spread,
        GradientSteps,
        OwnRows,
        Weigh,
        JudgeOffers,
        Mix,
    )
    proposer: ClassVar[None] = None
    hides: ClassVar[bool] = True
    extra: ClassVar[int] = 0

    @property
    def size(self) -> int:
        """Of a model."""
        return self.learner.size(self.features)

    @property
    def views(self) -> tuple[str, ...]:
        """Both, where a model of either is one of the other."""
        return VIEWS if self.learner.intercept else VIEWS[:1]

    @property
    def _chosen(self) -> StepSettings:
        return self.settings.steps

    def path(self, view: str, number: int) -> tuple[Any, ...]:
        """Where a group's random numbers are drawn."""
        return ("blend", view, number)

    def names(self) -> list[str]:
        """What offers are called."""
        return step_names(self.learner, self._chosen)

    def start_forms(self) -> Mapping[str, Form]:
        """What `starts` holds."""
        each = Numbers(("copies", "size"))
        return {"pooled": Numbers(("size",)), "alike": each, "neighbours": each}

    def starts(self, bundle: Bundle) -> list[tuple[Starts, Search]]:
        """What offers are made from, asked of the peers."""
        return [self._starts(group) for group in bundle.groups]

    def _starts(self, group: Group) -> tuple[Starts, Search]:
        chosen = self._chosen
        budget = group.budget
        pace = step_for(self.learner, self.features, chosen)
        each = chosen.pool_rounds + 3
        many = budget.fleet(min(group.peers, self.settings.fleet), each)
        who = some_of(group.peers, many, stream(group.seed, "asked"))
        left = budget.left(many, each)
        pooled = np.zeros(self.size)
        alike = np.tile(pooled, (group.targets * group.copies, 1))
        rounds = spent = 0
        if many:
            pooled = self._pooled(group, who)
            near = nearest_by_steps(group, self.learner, who, pooled, pace)
            rounds = min(chosen.near_rounds, int(left) // (2 * near.shape[1]))
            spent = rounds * near.shape[1]
            alike = near_average(
                group, near, pace, chosen.near_steps, rounds, self.size
            )
            sound = np.isfinite(alike).all(axis=1, keepdims=True) & (rounds > 0)
            alike = np.where(sound, alike, pooled)
        peers = (int(left) - spent) // (chosen.rounds + 1)
        peers = min(peers, group.peers // 2 or 1)
        weight = group.own(OwnRows(look=group.look))["weight"]
        rule = Neighbours(peers, group.peers, weight, None)
        fleet = group.fleet(GradientStep(pace, steps=chosen.short), alike)
        found = neighbours(group, fleet, rule, chosen.rounds if peers else 1)
        missing = {"pooled": not many, "alike": not rounds, "neighbours": not peers}
        starts = {"pooled": pooled, "alike": alike, "neighbours": found.models}
        return starts, found._replace(missing=unpaid(missing))

    def _pooled(self, group: Group, who: IntArray) -> Array:
        """One model for these peers, shrunk a little: where their averaged steps no longer move
        it.
        """
        linear = self.learner
        weight = group.weight[who]
        slopes = np.ones(self.size)
        if linear.intercept:
            slopes.reshape(linear.classes, -1)[:, -1] = 0.0
        step = bold_step(linear, self.features)
        shrink = 2.0 * step * self._chosen.shrink / weight.sum()

        def answer(model: Array) -> Array:
            models = np.tile(model, (len(who), 1))
            question = GradientSteps(look=group.look, models=models, step=step, steps=1)
            said = group.ask(question, who)["answers"]
            return np.asarray(mean_of(said, model, weight) - shrink * slopes * model)

        return settled(answer, np.zeros(len(slopes)), self._chosen.pool_rounds)

    def offers(self, own: Devices, starts: Starts) -> dict[str, Array]:
        """(copies, size) per starting point and number of own steps."""
        return step_offers(self.learner, own, starts, self._chosen)

    def peers(self, rows: Devices, look: ViewSettings) -> LinearPeers:
        """Devices that answer."""
        return LinearPeers.seen(self.learner, rows, look)

    def targets(self, own: TargetRows, look: ViewSettings) -> LinearTargets:
        """Devices that judge."""
        return LinearTargets(self.learner, own, look, self.offers)

    def shares(
        self, losses: Array, rows: Array, paid: Sequence[int], sure: float
    ) -> Array:
        """(devices, offers) by the evidence; nothing of what is not paid."""
        found = np.zeros(losses.shape)
        known = np.ascontiguousarray(losses[:, list(paid)])
        relative = not self.classes
        found[:, list(paid)] = shares_by_loss(known, rows, relative=relative, sure=sure)
        return found

    def mixed(self, offers: Sequence[Array], mix: Array) -> Array:
        """(targets, size) the offers of one view, (targets, size) each."""
        return mixed_offers(offers, mix)

    def models(self, n: int, parts: Sequence[tuple[IntArray, Array]]) -> Array:
        """(n, size) the sum over the views."""
        found = np.zeros((n, self.size))
        for which, models in parts:
            found[which] += models
        return found
