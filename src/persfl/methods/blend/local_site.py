"""All devices in this process: every question is answered at once, for many devices together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from persfl.devices import Devices
from persfl.learners.linear import Linear
from persfl.methods.blend.linear_rows import Folding, Own, Peers, mixed, spreads
from persfl.methods.blend.mixture import of_devices
from persfl.methods.blend.site import Evidence, Spreads, Starts
from persfl.methods.blend.views import Look
from persfl.types import Array, IntArray, Proposer


class Here:
    """Devices whose rows are here."""

    def __init__(
        self, rows: Devices, learner: Linear, folding: Folding | None = None
    ) -> None:
        self.rows, self.learner, self.folding = rows, learner, folding or Folding()
        self.n, self.features, self.classes = (
            len(rows),
            rows.features,
            self.folding.classes,
        )
        self.targets: IntArray = np.arange(self.n)
        self.copies = self.folding.count + 1

    def spreads(self) -> Spreads:
        """Of all devices."""
        return spreads(self.rows, self.learner.kind == "squared")

    def part(
        self, look: Look, mine: IntArray, rest: IntArray, seed: int, budget: float
    ) -> HerePart:
        """These targets and their peers in one view."""
        return HerePart(self, look, mine, rest, seed, budget)

    def alone(self, rest: IntArray) -> HerePart:
        """All other devices as targets, in shared units; for trying things out."""
        mine = np.setdiff1d(np.arange(self.n), rest)
        return self.part(Look.of("shared", self.spreads()), mine, rest, 0, 640.0)

    def side_by_side(self, work: Sequence[Callable[[Any], Any]]) -> list[Any]:
        """One after the other: memory is bounded by the largest piece."""
        return [piece(self) for piece in work]

    def mixed(self, parts: Sequence[tuple[Any, IntArray, Any]], shares: Array) -> Array:
        """Every device's model."""
        models, first = (
            np.zeros((self.n, self.learner.size(self.features))),
            {"shared": 0, "centred": shares.shape[1] // 2},
        )
        for look, mine, kept in parts:
            models[mine] += mixed(
                kept, shares[mine, first[look.name] :][:, : len(kept)]
            )
        return models


class HerePart:
    """See `persfl.methods.blend.site.Part`."""

    def __init__(
        self,
        homes: Here,
        look: Look,
        mine: IntArray,
        rest: IntArray,
        seed: int,
        budget: float,
    ) -> None:
        others = of_devices(homes.rows, rest)
        self.learner, self.features, self.seed, self.budget = (
            homes.learner,
            homes.features,
            seed,
            budget,
        )
        self.peers, self.targets, self.copies = len(rest), len(mine), homes.copies
        self.weight = others.total
        self._peers = Peers.seen(homes.learner, others, look)
        self._own = Own(
            homes.learner, of_devices(homes.rows, mine), look, homes.folding, mine
        )

    def answers(
        self,
        proposer: Proposer,
        who: IntArray,
        models: Array,
        whose: IntArray | None = None,
    ) -> Array:
        """From the peers' rows."""
        return self._peers.answers(proposer, who, models)

    def rough(self, who: IntArray, mean: Array, strength: Array) -> Array:
        """From the peers' rows."""
        return self._peers.rough(who, mean, strength)

    def own_rows(self) -> Array:
        """Of the targets' copies."""
        return self._own.copies.rows.total

    def own_answers(self, proposer: Proposer, models: Array) -> Array:
        """From the targets' copies."""
        who = np.arange(len(self._own.copies.rows))
        return np.stack(
            [
                self._own.copies.answers(proposer, who, np.tile(model, (len(who), 1)))
                for model in models
            ]
        )

    def own_rough(self, mean: Array, strength: Array) -> Array:
        """From the targets' copies."""
        return self._own.copies.rough(
            np.arange(len(self._own.copies.rows)), mean, strength
        )

    def losses(self, models: Array) -> Array:
        """On the targets' copies."""
        return self._own.losses(models)

    def evidence(self, starts: Starts) -> Evidence:
        """Judged by the targets' folds; what their whole rows make of the starts is kept until
        it is mixed.
        """
        offers = self._own.offers(starts)
        losses, weight = self._own.evidence(offers)
        return Evidence(
            losses,
            weight,
            [models[:: self.copies].copy() for models in offers.values()],
        )
