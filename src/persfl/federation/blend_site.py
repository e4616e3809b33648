"""Blend's questions over a federation: the same as in memory, as messages (see
`persfl.methods.blend.site`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from persfl.federation.blend_device import family_of
from persfl.federation.blend_exchange import BlendExchange, BlendScene, Letter
from persfl.federation.blend_group import Ask, FlowerBundle, FlowerGroup
from persfl.federation.letters import Letters
from persfl.federation.lockstep import side_by_side
from persfl.federation.model_sizes import ModelSizes
from persfl.federation.model_store import mixture_from
from persfl.methods.blend.fixed_point import counted
from persfl.methods.blend.folds import Folding
from persfl.methods.blend.offers.refits import RefitOffers
from persfl.methods.blend.offers.steps import StepOffers
from persfl.methods.blend.question_base import reply_numbers
from persfl.methods.blend.questions import Mix, Spread, Weight
from persfl.methods.blend.site import (
    Bundle,
    Evidence,
    GroupPlan,
    Result,
    Spreads,
    Starts,
)
from persfl.types import Array, Model
from persfl.wire.codec import WireError, within


class FlowerSite(BlendExchange):
    """The devices of a run, as `persfl.methods.blend.site.BlendSite`."""

    def __init__(self, letters: Letters, scene: BlendScene) -> None:
        terms = letters.terms
        self.family = family_of(terms)
        super().__init__(letters, self.family, scene)
        self.classes = terms.classes
        self.copies = Folding(terms.classes, scene.ordered).count + 1
        self.weight = np.zeros(self.n)
        self.sizes = ModelSizes()

    def spreads(self) -> Spreads:
        """Of all devices; a device that does not tell them does not count, and none counts as
        more than is plausible.
        """
        d = self.terms.features
        found = Spreads(np.zeros(self.n), np.zeros((self.n, d)))
        if isinstance(self.family, RefitOffers):  # of these, none counts for more
            return found
        linear = isinstance(self.family, StepOffers)
        question = Spread() if linear else Weight()
        told = self.ask([Letter(i, question) for i in range(self.n)])
        for i, arrays in enumerate(told):
            weight = reply_numbers(arrays.get("weight"), (1,))
            squares = np.zeros(d)
            if linear:
                squares = reply_numbers(arrays.get("squares"), (d,))
            good = np.isfinite([*weight, *squares]).all()
            if good and weight[0] > 0:
                found.weight[i] = weight[0]
                found.squares[i] = np.maximum(squares, 0.0)
        self.weight = counted(found.weight)
        # as many squares fewer: what a row brings stays
        part = self.weight / np.where(found.weight > 0, found.weight, 1.0)
        return Spreads(self.weight, found.squares * part[:, None])

    def work(
        self, plans: Sequence[GroupPlan], piece: Callable[[Bundle], Sequence[Result]]
    ) -> list[Result]:
        """Each for itself and all at once: their questions travel together."""
        pieces = [partial(_piece, self, plan, piece) for plan in plans]
        return [each[0] for each in side_by_side(pieces, self.exchange)]

    def mixed(
        self, plans: Sequence[GroupPlan], evidence: Sequence[Evidence], shares: Array
    ) -> list[Model]:
        """Every device's model, made at home; None for devices that are no targets, or could
        not be reached.
        """
        views: dict[int, list[Any]] = {}
        for plan, judged in zip(plans, evidence, strict=True):
            for t, i in enumerate(plan.mine.tolist()):
                starts = self.starts_of(judged.offers, t)
                views.setdefault(i, []).append((plan.look, starts))
        asked = [
            Letter(i, Mix(ordered=self.ordered, views=tuple(each), shares=shares[i]))
            for i, each in views.items()
        ]
        models: list[Model] = [None] * self.n
        alone = []
        for letter, told in zip(asked, self.ask(asked), strict=True):
            try:
                models[letter.to] = mixture_from(self.terms, within("model", told))
            except WireError:
                continue
            self.tells(letter.to, told)
            if reply_numbers(told.get("alone"), (1,))[0] == 1.0:
                alone.append(self.ids[letter.to])
        self.noted_alone(alone)
        return models

    def starts_of(self, starts: Starts, t: int) -> dict[str, Any]:
        """What target `t` of a group is told."""
        mine = slice(t * self.copies, (t + 1) * self.copies)
        return {
            name: form.part(starts[name], "copies", mine)
            for name, form in self.family.start_forms().items()
        }


def _piece(
    site: FlowerSite,
    plan: GroupPlan,
    piece: Callable[[Bundle], Sequence[Result]],
    ask: Ask,
) -> Sequence[Result]:
    return piece(FlowerBundle(FlowerGroup(site, ask, plan)))
