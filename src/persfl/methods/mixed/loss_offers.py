"""The offers of `offers_from_sums` for counts and robust losses: mixed models of working rows.

Every offer has working rows of its own, at its own scores: rows that are far from one model may be
near another. They are made again until scores stay, for all offers and all copies of the rows at
once. Counts begin at the mean count, or a level for each device that its own rows tell, since from
a rate that is far too low a step goes much too far; and no device goes further at once than is safe
(`safe_part`). Robust losses begin at one model for all of squared loss, and the others at what that
becomes: what is learned with rows that are far away among the others is hard to forget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from persfl.learners.linear import Linear
from persfl.methods.mixed import PANEL
from persfl.methods.mixed.loss_home import Ask, AskedAt, ToldAt
from persfl.methods.mixed.offers_from_sums import Offered, OneOffer, SumOffers
from persfl.methods.mixed.panel_draw import some_centres
from persfl.methods.mixed.sums_blend import SumsBlend
from persfl.methods.mixed.working_rows import (
    ROUNDS,
    first_reach,
    next_reach,
    usual_score,
)
from persfl.types import Array

BEGIN = 5  # rounds of one model for all alone, until rows that are far away are known
STEPS = 3  # of Sigma in a round: it goes on in the next one
SETTLED = 1e-2  # scores that move by a smaller share of their noise stay


class LossFits(NamedTuple):
    """Offers from all rows; models (offers, n, d) without those that each fold hides; how much a
    row of each device counts, (n,): 1, or less at loud ones; and the reach of one model for all
    (see `working_rows.next_reach`).
    """

    whole: Offered
    folds: list[Array]
    calm: Array
    reach: float


@dataclass(frozen=True, eq=False)
class LossOffers:
    """Offers of `n` devices that answer questions about so many copies of their rows."""

    ask: Ask
    n: int
    copies: int
    learner: Linear
    offers: SumOffers

    @staticmethod
    def of(
        ask: Ask, size: tuple[int, int], copies: int, learner: Linear, seed: int
    ) -> LossOffers:
        """Of `size` devices and columns."""
        n, d = size
        panel = some_centres(n, seed, PANEL)
        plan = SumOffers(d, learner.intercept, some_centres(n, seed), panel)
        return LossOffers(ask, n, copies, learner, plan)

    def fit(self) -> LossFits:
        """Of each copy nothing is known of rows that it does not have."""
        zero = np.zeros((self.n, self.offers.columns))
        reach = first_reach(self.learner, 0.0)
        copies = range(self.copies)
        told = self.ask([AskedAt(copy, zero, zero, reach) for copy in copies])
        pooled = [self._begun("pooled", copy, told[copy]) for copy in copies]
        if self.learner.kind != "poisson":
            self._settle(pooled, BEGIN)
        tracks = [
            pooled[copy] if name == "pooled" else self._beside(name, pooled[copy], told)
            for copy in copies
            for name in self.offers.names
        ]
        self._settle(tracks, ROUNDS)
        found = [track.found for track in tracks]
        many = len(self.offers.names)
        whole, *folds = [
            self.offers.offered(found[k : k + many]) for k in range(0, len(found), many)
        ]
        noise = whole.learned[self.offers.names.index("diagonal")].variances.noise
        calm = np.minimum(noise.each / noise.usual, 1.0)
        reach = tracks[self.simplest].place.reach
        return LossFits(whole, [fold.models for fold in folds], calm, reach)

    @property
    def simplest(self) -> int:
        """The place of one model for all among the offers."""
        return self.offers.names.index("pooled")

    def blend(self, fits: LossFits, shares: Array) -> SumsBlend:
        """Offers, mixed by these shares."""
        models = np.einsum("c,cnd->nd", shares, fits.whole.models)
        (told,) = self.ask([AskedAt(0, models, models, fits.reach)])
        sums = told.sums.about(self.learner, fits.reach, models)
        names = self.offers.names
        return SumsBlend(
            self.offers, sums, fits.whole, fits.folds, fits.calm, names, shares
        )

    def _settle(self, tracks: Sequence[_Track], rounds: int) -> None:
        """All at once."""
        for _ in range(rounds):
            going = [track for track in tracks if not track.settled]
            if not going:
                break
            told = self.ask([track.place for track in going])
            for track, each in zip(going, told, strict=True):
                track.go(each)

    def _begun(self, name: str, copy: int, told: ToldAt) -> _Track:
        """From sums at scores of 0."""
        start = np.zeros((self.n, self.offers.columns))
        if self.learner.kind != "poisson":
            reach = first_reach(self.learner, 0.0)
            track = self._track(name, AskedAt(copy, start, start, reach))
            track.go(told)
            # squared loss is at its models at once
            track.place = track.place._replace(start=track.place.end)
            return track
        usual = 0.0
        if self.learner.intercept:
            rows = told.sums.weight
            counts = np.maximum(told.sums.product[:, 0] + rows, 0.0)
            usual = usual_score(float(counts.sum()), float(rows.sum()))
            start[:, 0] = usual
            if name != "pooled":  # beside one row's worth of the usual
                rate = np.exp(usual)
                start[:, 0] += np.log((counts + rate) / (rows * rate + rate))
        return self._track(
            name, AskedAt(copy, start, start, first_reach(self.learner, usual))
        )

    def _beside(self, name: str, pooled: _Track, told: Sequence[ToldAt]) -> _Track:
        """Robust losses go on from where one model for all is: what is far from it is known."""
        place = pooled.place
        if self.learner.kind == "poisson":
            return self._begun(name, place.copy, told[place.copy])
        return self._track(name, place._replace(start=place.end))

    def _track(self, name: str, place: AskedAt) -> _Track:
        return _Track(self.learner, self.offers, name, place)


@dataclass
class _Track:
    """One offer of one copy: where it is asked about next, and what is known of it."""

    learner: Linear
    offers: SumOffers
    name: str
    place: AskedAt
    offer: OneOffer | None = None
    settled: bool = False

    def go(self, told: ToldAt) -> None:
        """On to the models that these sums tell."""
        place = self.place
        here = place.start + told.part[:, None] * (place.end - place.start)
        sums = told.sums.about(self.learner, place.reach, here)
        known = self.offer.learned if self.offer else None
        found = self.offers.one(self.name, sums, known, STEPS)
        noise = found.learned.variances.noise.usual
        step = found.models - here
        away = float(np.einsum("ni,nij,nj->", step, sums.square, step))
        self.settled = noise * away <= SETTLED**2 * float(sums.weight.sum())
        reach = next_reach(self.learner, place.reach, noise)
        self.place = AskedAt(place.copy, here, found.models, reach)
        self.offer = found if self.settled else found._replace(models=here)

    @property
    def found(self) -> OneOffer:
        """The offer, where its working rows stay."""
        assert self.offer is not None
        return self.offer
