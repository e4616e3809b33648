"""Linear models in two views of their rows: what is asked of them, and one vector in the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from persfl.devices import Devices
from persfl.learners.linear import Linear
from persfl.methods.blend.blend_settings import USUAL, BlendSettings
from persfl.methods.blend.evidence import shares_by_loss
from persfl.methods.blend.folds import TargetRows
from persfl.methods.blend.linear_rows import (
    LinearPeers,
    LinearTargets,
    mixed_offers,
)
from persfl.methods.blend.questions import (
    JudgeOffers,
    Mix,
    OwnRows,
    Question,
    Spread,
    Weigh,
)
from persfl.methods.blend.site import Starts
from persfl.methods.blend.views import VIEWS, ViewSettings
from persfl.types import Array, IntArray


@dataclass(frozen=True, eq=False)
class LinearFamily:
    """See `persfl.methods.blend.offers.Offers`."""

    linear: Linear
    features: int
    classes: int = 0
    settings: BlendSettings = USUAL
    unit: ClassVar[int]
    asks: ClassVar[tuple[type[Question], ...]]
    proposer: ClassVar[None] = None
    hides: ClassVar[bool] = True
    extra: ClassVar[int] = 0

    @property
    def learner(self) -> Linear:
        """The learner whose models are mixed."""
        return self.linear

    @property
    def size(self) -> int:
        """Of a model."""
        return self.linear.size(self.features)

    @property
    def views(self) -> tuple[str, ...]:
        """Both, where a model of either is one of the other."""
        return VIEWS if self.linear.intercept else VIEWS[:1]

    @property
    def questions(self) -> tuple[type[Question], ...]:
        """What devices are asked."""
        return (Spread, *self.asks, OwnRows, Weigh, JudgeOffers, Mix)

    def path(self, view: str, number: int) -> tuple[Any, ...]:
        """Where a group's random numbers are drawn."""
        return ("blend", view, number)

    def offers(self, own: Devices, starts: Starts) -> dict[str, Array]:
        """(copies, size) per offer."""
        raise NotImplementedError

    def peers(self, rows: Devices, look: ViewSettings) -> LinearPeers:
        """Devices that answer."""
        return LinearPeers.seen(self.linear, rows, look)

    def targets(self, own: TargetRows, look: ViewSettings) -> LinearTargets:
        """Devices that judge."""
        return LinearTargets(self.linear, own, look, self.offers)

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
