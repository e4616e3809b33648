"""All rows in this process: every question is answered at once, for many devices together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from persfl.devices import Devices
from persfl.fleets import ArrayFleet
from persfl.methods.blend.adam import descended
from persfl.methods.blend.budget import Budget, PaidFleet
from persfl.methods.blend.fitted_rows import FittedTargets
from persfl.methods.blend.folds import Folding, TargetRows
from persfl.methods.blend.linear_rows import spreads
from persfl.methods.blend.mixture import of_devices
from persfl.methods.blend.moves_alike import NEAREST
from persfl.methods.blend.offers import Descent, Offers, Peers, RefitOffers, Targets
from persfl.methods.blend.offers.steps import StepOffers
from persfl.methods.blend.question_base import Question
from persfl.methods.blend.search import Searchers, question_of
from persfl.methods.blend.site import (
    Bundle,
    Evidence,
    GroupPlan,
    Result,
    Spreads,
    Starts,
)
from persfl.methods.blend.vector_rows import offers_of, rows_of, stacked_rows
from persfl.methods.blend.views import ViewSettings
from persfl.seeds import Stream, stream
from persfl.types import (
    Array,
    Data,
    Differentiable,
    Fleet,
    IntArray,
    Model,
    Proposer,
)


class LocalSite:
    """Devices whose rows are here; `together` says that rows of several may be put in one place.

    `answered` are the same rows as those who are asked know them: some may be hidden, with weight
    0.
    """

    def __init__(
        self,
        rows: Devices,
        family: Offers,
        folding: Folding,
        *,
        n_jobs: int | None = 1,
        compute: str | None = None,
        together: bool = True,
        answered: Devices | None = None,
    ) -> None:
        self.rows = rows
        self.answered = rows if answered is None else answered
        self.family = family
        self.folding = folding
        self.n_jobs = n_jobs
        self.compute = compute
        self.together = together
        self.n = len(rows)
        self.classes = folding.classes
        self.seed = folding.seed
        self.targets: IntArray = np.arange(self.n)
        self.copies = folding.count + 1
        self.longest = int(rows.counts.max())

    @property
    def differentiable(self) -> Differentiable:
        """The learner, where models are vectors."""
        assert isinstance(self.family, Descent)
        return self.family.learner

    def spreads(self) -> Spreads:
        """Of all devices; only linear models have views that need them."""
        rows = self.answered
        family = self.family
        if isinstance(family, StepOffers):
            return spreads(rows)
        return Spreads(rows.total, np.zeros((self.n, rows.features)))

    def work(
        self, plans: Sequence[GroupPlan], piece: Callable[[Bundle], Sequence[Result]]
    ) -> list[Result]:
        """One after the other, so that memory is bounded by the largest; networks, which are many
        small calls otherwise, as many together as have room.
        """
        step = 1
        if isinstance(self.family, Descent):
            many = max(len(plan.mine) for plan in plans) * self.copies
            numbers = 30 * self.family.size + 20 * self.longest * self.rows.features
            each = many * numbers + 3 * self.rows.X.size
            step = max(1, self.family.settings.descent.room // each)
        found: list[Result] = []
        for i in range(0, len(plans), step):
            groups = [self.group(plan) for plan in plans[i : i + step]]
            found += piece(LocalBundle(self, groups))
        return found

    def group(self, plan: GroupPlan) -> LocalGroup:
        """These targets and their peers."""
        return LocalGroup(self, plan)

    def alone(self, rest: IntArray) -> LocalGroup:
        """All other devices as targets, in shared units; for trying things out."""
        mine = np.setdiff1d(np.arange(self.n), rest)
        look = ViewSettings.of("shared", self.spreads())
        plan = GroupPlan(look, 0, mine, rest, 0, 640.0, len(mine), len(rest), self.seed)
        return self.group(plan)

    def mixed(
        self, plans: Sequence[GroupPlan], evidence: Sequence[Evidence], shares: Array
    ) -> Any:
        """Every device's model."""
        family = self.family
        wide = len(family.names())
        parts = []
        for plan, told in zip(plans, evidence, strict=True):
            first = wide * family.views.index(plan.look.name)
            mix = shares[plan.mine, first : first + wide]
            parts.append((plan.mine, family.mixed(told.offers, mix)))
        return family.models(self.n, parts)


class LocalBundle:
    """Groups that are computed together."""

    def __init__(self, site: LocalSite, groups: Sequence[LocalGroup]) -> None:
        self.site = site
        self.groups = groups

    def near_descent(
        self,
        which: Sequence[int],
        near: Sequence[IntArray],
        start: Array,
        steps: int,
        rate: float,
    ) -> Array:
        """The mean gradient of peers is the gradient of their rows, weighed."""
        site = self.site
        rows = []
        learner = site.differentiable
        for h, who in zip(which, near, strict=True):
            group = self.groups[h]
            group.budget.pay(0.25, steps * who.size)
            rows.append(rows_of(group.others, who, self.site.longest, NEAREST))
        data = stacked_rows(rows)
        return descended(learner, start, data, (steps,), rate)[steps]

    def evidence(self, starts: Sequence[Starts]) -> list[Evidence]:
        """Judged by the targets' folds; what their whole rows make of the starts is kept until
        it is mixed.
        """
        groups = self.groups
        family = self.site.family
        if isinstance(family, Descent):
            own = [group.rows.copies for group in groups]
            places = [group.seed for group in groups]
            offers = offers_of(family, own, starts, self.site.longest, places)
        else:
            offers = [
                group.judges.offers(each)
                for group, each in zip(groups, starts, strict=True)
            ]
        found = []
        for group, each in zip(groups, offers, strict=True):
            losses, weight = group.judges.judged(each)
            found.append(Evidence(losses, weight, group.judges.whole(each)))
        return found


class LocalGroup:
    """See `persfl.methods.blend.site.Group`."""

    def __init__(self, site: LocalSite, plan: GroupPlan) -> None:
        self.site = site
        self.family = site.family
        self.plan = plan
        self.look = plan.look
        self.seed = plan.seed
        self.copies = site.copies
        self.peers, self.targets = len(plan.rest), len(plan.mine)
        unit = self.family.unit
        self.budget = Budget(plan.budget, self.targets, self.copies, unit)
        self.others = of_devices(site.answered, plan.rest)
        self.weight = self.others.total
        mine = of_devices(site.rows, plan.mine)
        self.rows = TargetRows(mine, site.folding, plan.mine)

    @cached_property
    def answering(self) -> Peers:
        """The peers."""
        return self.family.peers(self.others, self.look)

    @cached_property
    def judges(self) -> Targets:
        """The targets."""
        if isinstance(self.family, RefitOffers):
            return self.family.targets(self.rows, self.look, self._own_place)
        return self.family.targets(self.rows, self.look)

    def ask(
        self, question: Question, who: IntArray, whose: IntArray | None = None
    ) -> Mapping[str, Any]:
        """From the peers' rows."""
        self.budget.pay(question.cost, int((who >= 0).sum()))
        if not isinstance(self.family, RefitOffers) or whose is None:
            return self.answering.answer(question, who)

        def place(i: int) -> Stream:
            return stream(self.seed, "together", int(whose[i]), int(who[i]))

        return self.family.peers(self.others, self.look, place).answer(question, who)

    def own(self, question: Question) -> Mapping[str, Any]:
        """From the targets' rows."""
        return self.judges.answer(question)

    def fleet(self, proposer: Proposer, start: Any) -> Fleet:
        """Linear models by questions, whose answers are computed for many at once; others by the
        engines of a fleet.
        """
        if isinstance(self.family, StepOffers):
            return Searchers(self, question_of(proposer, self.look), start)
        everybody = Devices.joined([self.others, self.rows.copies])
        fleet = ArrayFleet(
            everybody,
            learner=self.family.learner,
            proposer=proposer,
            targets=list(range(self.peers, len(everybody))),
            start=list(start),
            seed=self.seed,
            n_jobs=self.site.n_jobs,
            compute=self.site.compute,
        )
        return PaidFleet(fleet, self.budget)

    def begin(self) -> Array:
        """As the learner does."""
        rows = self.rows.copies
        data = rows.gather(np.arange(len(rows)))
        learner = self.site.differentiable
        return np.asarray(learner.init(data, stream(self.seed, "start")))

    def pooled_descent(self, who: IntArray, steps: int, rate: float) -> Array:
        """Their mean gradient, by rows, is that of all rows."""
        self.budget.pay(0.25, steps * len(who))
        some = of_devices(self.others, who)
        learner = self.site.differentiable
        data = Data(some.X[None], some.y[None], some.weight[None])
        start = learner.init(data, stream(self.seed, "start"))
        found = descended(learner, start, data, (steps,), rate)
        return np.asarray(found[steps][0])

    def pooled_fit(self, who: IntArray) -> Model | None:
        """Of their rows together, where they may be."""
        if not self.site.together:
            return None
        self.budget.pay(1.0, len(who))
        some = of_devices(self.others, who)
        data = Data(some.X, some.y, some.weight)
        place = stream(self.plan.run_seed, "pooled", self.plan.number)
        return self.family.learner.fit(data, place)

    def own_fits(self) -> list[Model]:
        """They are needed as offers, too."""
        judges = self.judges
        assert isinstance(judges, FittedTargets)
        return list(judges.alone)

    def _own_place(self, copy: int) -> Stream:
        return stream(self.plan.run_seed, "own", self.plan.number, copy)
