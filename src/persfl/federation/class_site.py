"""Blend of small models of classes over a federation: the rule of one process
(`persfl.methods.mixed.class_rule`), its rows at home.

Devices tell how the log chance of their labels bends at models of the fleet, and the coordinator
takes Newton's steps (12 exchanges); they answer with their models, pulled to the fleet's (1) and to
the means of their likeliest centres (6); they say what their hidden rows make of shares, and the
coordinator takes Newton's steps again (about 8); and each target mixes its model at home (1). What
one process offers beside that, trees and fits to the rows of several devices that are alike, is not
offered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from persfl.federation.blend_exchange import (
    BlendScene,
    Letter,
)
from persfl.federation.class_neighbours import ClassFleet, NearModels, near_models
from persfl.federation.doubts import DoubtfulExchange
from persfl.federation.letters import Letters
from persfl.federation.model_store import mixture_from
from persfl.federation.told_bends import (
    BendsFamily,
    ToldColumns,
    counted_classes,
    counting_bends,
    counting_pools,
    summed_bends,
    summed_pools,
)
from persfl.methods.blend.class_questions import ClassBends, ClassMix, ClassPool
from persfl.methods.blend.mixture import BlendResult
from persfl.methods.blend.question_base import reply_numbers
from persfl.methods.mixed.class_hidden import chosen_by_class
from persfl.methods.mixed.class_newton import Bend, newton_centre
from persfl.methods.mixed.class_rule import pool_belief
from persfl.methods.mixed.log_pool import PoolSums, settled_shares
from persfl.methods.mixed.near_round import SHARED, near_round
from persfl.trust import Trust
from persfl.types import Array, IntArray, Model, Round
from persfl.wire.codec import WireError, within

NO_ALIKE = (
    "Models fitted to the rows of several devices that are alike, and trees of the whole fleet,"
    " which blend offers of classes where all rows are in one place, are not offered over a"
    " federation."
)


class ClassSite(DoubtfulExchange):
    """The devices of a run."""

    def __init__(self, letters: Letters, scene: BlendScene) -> None:
        self.family = BendsFamily.of(letters.terms)
        super().__init__(letters, self.family, scene)
        self.copies = self.family.copies(self.ordered)
        self._known: dict[int, ToldColumns] = {}
        self._there: set[int] = set()  # those whose bends count
        self._less: dict[int, float] = {}
        self._judging: set[int] = set(range(self.n))
        self._weight: dict[int, float] = {}

    def blended(self) -> BlendResult:
        """Every target's model, as it was made at home; None for the others."""
        family = self.family
        size = (self.copies, family.columns, family.classes)
        fleet = ClassFleet(*newton_centre(self._bends, *size, level=family.level))
        near = near_models(self, fleet) if self.n > 2 else None
        design = chosen_by_class(counted_classes(self._known))
        belief = pool_belief(family.offers(near is not None), design)

        def ask(shares: Array) -> PoolSums:
            return self._pool(fleet, near, design, shares)

        shares = settled_shares(ask, belief)
        self.noted()
        return self._mixed(fleet, near, shares)

    # The fleet's model

    def _bends(self, models: Array) -> Bend:
        """Summed over all who tell of rows; who is silent once, or tells none, counts no more."""
        many = len(models)
        first = not self._known
        asked = sorted(self._there) if not first else list(range(self.n))
        flat = models.reshape(many, -1)
        question = ClassBends(ordered=self.ordered, many=many, models=flat)
        number = self.exchanges
        found: dict[int, Bend] = {}
        for i, told in zip(
            asked, self.ask([Letter(i, question) for i in asked]), strict=True
        ):
            known = self._known.get(i) or self.family.read_columns(told)
            bend = known and self.family.read(told, many, known)
            if known and bend:
                self._known[i] = known
                found[i] = bend
            else:
                self.doubted(i, told, number)
        if not found:
            raise self.nobody()
        self._there = set(found)
        if first:
            self._less = counting_bends(self._known)
            self.heavy = {i for i, less in self._less.items() if less < 1}
        return summed_bends([(self._less[i], found[i]) for i in sorted(found)])

    # Shares

    def _pool(
        self, fleet: ClassFleet, near: NearModels | None, design: float, shares: Array
    ) -> PoolSums:
        """What everybody's hidden rows say; who does not tell counts no more."""
        asked = sorted(self._judging & self._there)
        flat = fleet.model.reshape(self.copies, -1)
        letters = [
            Letter(
                i,
                ClassPool(
                    ordered=self.ordered,
                    slopes=fleet.slopes,
                    fleet=flat,
                    near=near is not None,
                    mean=self._mean(near, i),
                    design=design,
                    shares=shares,
                ),
            )
            for i in asked
        ]
        told: dict[int, tuple[float, PoolSums]] = {}
        number = self.exchanges
        for i, reply in zip(asked, self.ask(letters) if letters else [], strict=True):
            found = self.family.read_pool(reply, len(shares))
            if found is not None and found[0] <= 1.001 * self._known[i].weight:
                told[i] = found
            else:
                self.doubted(i, reply, number)
        self._judging = set(told)
        self._weight = {i: weight for i, (weight, _) in told.items()}
        less = counting_pools(told)
        parts = [(less[i] * self._less[i], sums) for i, (_, sums) in told.items()]
        return summed_pools(parts, len(shares))

    def _mean(self, near: NearModels | None, i: int) -> Array | None:
        return None if near is None else near.mean[:, i].reshape(self.copies, -1)

    # Models

    def _mixed(
        self, fleet: ClassFleet, near: NearModels | None, shares: Array
    ) -> BlendResult:
        """Every target mixes its model, and tells who is near it."""
        family = self.family
        flat = fleet.model.reshape(self.copies, -1)
        who = np.zeros(0, dtype=np.int64) if near is None else near.who
        centres = np.zeros((0, family.numbers))
        if near is not None:
            centres = near.models.reshape(len(who), family.numbers)
        letters = []
        for i in self.targets.tolist():
            other = who != i
            question = ClassMix(
                ordered=self.ordered,
                slopes=fleet.slopes,
                fleet=flat,
                near=near is not None,
                mean=self._mean(near, i),
                shares=shares,
                many=int(other.sum()),
                centres=centres[other],
            )
            letters.append(Letter(i, question))
        models: list[Model] = [None] * self.n
        made_of = np.zeros((self.n, 3))
        posterior = np.zeros((self.n, len(who)))
        losses = np.full((self.n, len(who) + 1), np.inf)
        for letter, told in zip(letters, self.ask(letters), strict=True):
            i = letter.to
            try:
                models[i] = mixture_from(self.terms, within("model", told))
            except WireError:
                continue
            self.tells(i, told)
            if self._weight.get(i, 0.0) == 0.0:
                self.foldless.add(self.ids[i])
            made_of[i] = self._made_of(told, shares, near is not None)
            other = who != i
            many = int(other.sum())
            near_by = reply_numbers(told.get("posterior"), (many,))
            missed = reply_numbers(told.get("losses"), (many + 1,), most=1e100)
            posterior[i, other] = np.clip(np.nan_to_num(near_by), 0.0, 1.0)
            here = np.append(True, other)
            losses[i, here] = np.where(missed >= 0, missed, np.inf)
        rounds = self._record(who, posterior, losses, made_of, shares)
        return BlendResult(models, SHARED, made_of, (rounds,))

    def _made_of(self, told: Mapping[str, Any], shares: Array, near: bool) -> Array:
        """Own rows, fleet, neighbours."""
        own = reply_numbers(told.get("own"), (len(shares),))
        own = np.clip(np.nan_to_num(own), 0.0, 1.0)
        mine = float(shares @ own)
        close = float(shares[-2:] @ (1.0 - own[-2:])) if near else 0.0
        return np.array([mine, 1.0 - mine - close, close])

    def _record(
        self,
        who: IntArray,
        posterior: Array,
        losses: Array,
        made_of: Array,
        shares: Array,
    ) -> Round:
        """Who is near whom, as a round of asking; the likeliest first."""
        order = np.argsort(-posterior, axis=1, kind="stable")
        peers = who[order] if len(who) else np.zeros((self.n, 0), dtype=np.int64)
        missed = np.take_along_axis(losses[:, 1:], order, axis=1)
        there = np.isfinite(missed)
        return near_round(
            Trust(self.n, np.arange(self.n)),
            np.where(there, peers, -1),
            np.take_along_axis(posterior, order, axis=1),
            np.column_stack([losses[:, 0], missed]),
            made_of=made_of,
            names=self.family.names(len(who) > 0),
            shares=shares,
            notes={},
        )
