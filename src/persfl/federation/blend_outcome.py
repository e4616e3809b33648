"""How a blend over a federation ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from persfl.federation.holdout import sound

if TYPE_CHECKING:
    from persfl.federation.blend_exchange import BlendExchange


class Outcome:
    """What the result of a run is written from: as much of a `FlowerFleet` as that needs."""

    def __init__(self, site: BlendExchange, models: Sequence[Any]) -> None:
        self.ids = site.ids
        self.n = site.n
        self.targets = site.targets
        self.learner = site.learner
        self.terms = site.terms
        self.roster = site.roster
        letters = site.letters
        self.rows = letters.rows
        self.post = letters.post
        self.home = letters.home
        self.models = [models[t] for t in site.targets.tolist()]
        self._told = site.judged
        self.foldless = sorted(site.foldless)
        self.notes = list(site.notes)

    def judged(self) -> dict[int, dict[str, Any]]:
        """What targets tell of the rows that they held back, if any."""
        if not self.terms.holdout:
            return {}
        return {i: told for i, told in self._told.items() if sound(told)}

    def finish(self) -> list[str]:
        """Who has no model in the end."""
        return [
            self.ids[t]
            for t, model in zip(self.targets.tolist(), self.models, strict=True)
            if model is None
        ]
