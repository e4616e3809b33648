"""Blend of counts or robust losses over a federation: the rule of one process
(`persfl.methods.mixed.loss_rule`), its rows at home.

Devices tell sums over working rows at models that they are sent, for all offers and all copies of
their rows at once, until scores stay (14 exchanges for counts, 19 for robust losses, at most); what
hidden rows say of shares (about 5); and each target is handed its model (1). Trees, which need rows
of several devices in one place, are not offered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from persfl.federation.blend_exchange import (
    NOTHING,
    BlendScene,
    Letter,
)
from persfl.federation.doubts import DoubtfulExchange
from persfl.federation.letters import Letters
from persfl.federation.told_losses import (
    FAR,
    LossFamily,
    counting_hidden,
    counting_losses,
)
from persfl.methods.blend.loss_questions import LossPlaces, LossShares, LossTake
from persfl.methods.blend.mixture import BlendResult
from persfl.methods.blend.question_base import reply_numbers
from persfl.methods.mixed.hidden_loss import shares_by_turns
from persfl.methods.mixed.linear_stage import sums_result
from persfl.methods.mixed.loss_home import AskedAt, ToldAt
from persfl.methods.mixed.loss_offers import LossFits, LossOffers
from persfl.methods.mixed.loss_rule import seen_models
from persfl.methods.mixed.near_round import level_last, likeliest
from persfl.methods.mixed.principal_axes import PrincipalAxes
from persfl.methods.mixed.sums_blend import LinearBlend, SumsBlend
from persfl.methods.mixed.working_rows import LossSums
from persfl.types import Array, IntArray, Model


class LossSite(DoubtfulExchange):
    """The devices of a run."""

    def __init__(self, letters: Letters, scene: BlendScene) -> None:
        self.family = LossFamily.of(letters.terms)
        super().__init__(letters, self.family, scene)
        self._weight = np.zeros((1 + self.family.folds(self.ordered), self.n))
        self._there = set(range(self.n))  # those whose sums count
        self._judging = set(range(self.n))

    def blended(self) -> BlendResult:
        """Every target's model, as it was handed out; None for the others."""
        family = self.family
        size = (self.n, family.size)
        copies = len(self._weight)
        offers = LossOffers.of(self._told, size, copies, family.learner, self.seed)
        fits = offers.fit()

        def ask(shares: Array, reach: float) -> LossSums:
            return self._hidden(fits, shares, reach)

        told = family.learner, family.offers, fits.reach, offers.simplest
        shares = shares_by_turns(ask, *told)
        known = offers.blend(fits, shares)
        self.noted()
        models, found = self._handed(known)
        result = sums_result(found, family.level)
        wanted = np.isin(np.arange(self.n), self.targets)
        return replace(result, models=models, shares=result.shares * wanted[:, None])

    # Sums

    def _told(self, places: Sequence[AskedAt]) -> list[ToldAt]:
        """Of everybody at these places; who is silent, or tells none, counts no more."""
        reach = np.array([place.reach for place in places])
        copies = np.array([place.copy for place in places])
        asked = sorted(self._there)
        letters = [Letter(i, self._question(places, i)) for i in asked]
        found: dict[int, ToldAt] = {}
        number = self.exchanges
        for i, reply in zip(asked, self.ask(letters) if letters else [], strict=True):
            told = self.family.read_places(reply, reach)
            if told and self._weighs(i, copies, told.sums.weight):
                found[i] = told
            else:
                self.doubted(i, reply, number)
        self._there = set(found)
        if not found:
            raise self.nobody()
        for i, told in found.items():
            self._weight[copies, i] = told.sums.weight
        return [self._at(k, found) for k in range(len(places))]

    def _weighs(self, i: int, copies: IntArray, weight: Array) -> bool:
        """Whether copies weigh what they did; when they are first told of, the whole comes first,
        and nothing weighs more.
        """
        known = self._weight[copies, i]
        if not known.any():
            return bool((weight <= (1.0 + 1e-6) * weight[0]).all())
        return np.allclose(weight, known, rtol=1e-6)

    def _question(self, places: Sequence[AskedAt], i: int) -> LossPlaces:
        return LossPlaces(
            ordered=self.ordered,
            many=len(places),
            copies=np.array([float(place.copy) for place in places]),
            starts=np.stack([place.start[i] for place in places]),
            ends=np.stack([place.end[i] for place in places]),
            reach=np.array([place.reach for place in places]),
        )

    def _at(self, k: int, found: Mapping[int, ToldAt]) -> ToldAt:
        """Everybody's at one place, nobody with more than ten usual devices have."""
        d = self.family.size
        none = np.zeros(self.n)
        square, product = np.zeros((self.n, d, d)), np.zeros((self.n, d))
        sums = LossSums(square, product, none, none.copy(), none.copy())
        part = np.ones(self.n)
        for i, told in found.items():
            for mine, array in zip(sums, told.sums, strict=True):
                mine[i] = array[k]
            part[i] = told.part[k]
        less = counting_losses(self.family.learner, sums)
        self.heavy |= set(np.flatnonzero(less < 1).tolist())
        return ToldAt(sums.weighed(less), part)

    # Shares

    def _hidden(self, fits: LossFits, shares: Array, reach: float) -> LossSums:
        """What everybody's hidden rows say; who does not tell counts no more."""
        asked = sorted(self._judging & self._there)
        letters = [
            Letter(
                i,
                LossShares(
                    ordered=self.ordered,
                    models=np.stack([fold[:, i] for fold in fits.folds]),
                    shares=shares,
                    reach=reach,
                ),
            )
            for i in asked
        ]
        found: dict[int, LossSums] = {}
        number = self.exchanges
        offers = self.family.offers
        for i, reply in zip(asked, self.ask(letters) if letters else [], strict=True):
            told = self.family.read(reply, np.array([reach]), offers, level=False)
            if told and told.weight[0] <= 1.001 * self._weight[0, i]:
                found[i] = told
            else:
                self.doubted(i, reply, number)
        self._judging = set(found)
        away = [
            i for i in self.targets.tolist() if i not in found or not found[i].weight
        ]
        self.foldless = {self.ids[i] for i in away}
        return self._weighed(found, fits.calm)

    def _weighed(self, found: Mapping[int, LossSums], calm: Array) -> LossSums:
        """Rows of loud devices count for less, and so does whose offers differ absurdly."""
        offers = self.family.offers
        if not found:
            none = np.zeros(1)
            both = np.zeros((1, offers, offers)), np.zeros((1, offers))
            return LossSums(*both, none, none, none)
        each = zip(*found.values(), strict=True)
        sums = LossSums(*(np.concatenate(one) for one in each))
        sums = sums.weighed(calm[list(found)])
        less = counting_hidden(sums)
        self.heavy |= set(np.array(list(found))[less < 1].tolist())
        return sums.weighed(less)

    # Models

    def _handed(self, known: SumsBlend) -> tuple[list[Model], LinearBlend]:
        """Each target takes its model, and tells what it loses by one model for all, and by those
        of its likeliest centres.
        """
        axes = PrincipalAxes(self.family.level)
        # who tells nothing weighs next to nothing, and is nobody's neighbour
        away = np.flatnonzero(known.sums.weight == 0)
        weight = np.maximum(known.sums.weight, 1e-9)
        known = replace(known, sums=known.sums._replace(weight=weight))
        found = known.blended(axes)
        found.posterior[:, np.isin(found.centres, away)] = 0.0
        models = level_last(found.models, self.family.level)
        mixes = [np.einsum("c,cnd->nd", known.linear, each) for each in known.folds]
        hidden = np.stack(
            [level_last(axes.outside(mix), self.family.level) for mix in mixes], axis=1
        )
        near, pooled = seen_models(known, axes)
        order = likeliest(found.posterior, found.likeness.chance)
        letters = []
        for i in self.targets.tolist():
            seen = np.concatenate([pooled[i : i + 1], near[found.centres[order[i]]]])
            many = len(seen)
            take = LossTake(
                ordered=self.ordered,
                model=models[i],
                hidden=hidden[i],
                many=many,
                shown=seen,
            )
            letters.append(Letter(i, take))
        taken: list[Model] = [None] * self.n
        errors = np.full(found.centre_error.shape, np.inf)
        fleet = np.full(self.n, np.inf)
        alone = list[str]()
        for letter, told in zip(letters, self.ask(letters), strict=True):
            i = letter.to
            if told is NOTHING:
                continue
            model = reply_numbers(told.get("model"), models[i].shape, most=FAR)
            if not np.isfinite(model).all():
                continue
            taken[i] = model
            self.tells(i, told)
            if reply_numbers(told.get("own"), (1,))[0] > 0:
                alone.append(self.ids[i])
                found.made_of[i] = [1.0, 0.0, 0.0]
            shape = (1 + order.shape[1],)
            losses = reply_numbers(told.get("losses"), shape, most=1e100)
            losses = np.where(np.isfinite(losses), losses, np.inf)
            fleet[i], errors[i, order[i]] = losses[0], losses[1:]
        self.noted_alone(alone)
        return taken, found._replace(centre_error=errors, fleet_error=fleet)
