"""A device's side of blends and mixed models of squared loss: it tells sums over parts of its rows,
once, or answers refits where its owner allows no sums, and is handed its model.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from persfl.federation.asked_device import AskedDevice, DeviceReply, RowsAsked
from persfl.federation.holdout import judged
from persfl.federation.messages import Refused
from persfl.federation.policy import work_of_fit
from persfl.federation.told_sums import MANY, SumsFamily
from persfl.methods.blend.question_base import Question
from persfl.methods.blend.questions import Draw, PartSums, Take
from persfl.methods.mixed.device_sums import DeviceSums
from persfl.methods.mixed.drawn_fits import Drawing, drawn_fits
from persfl.methods.mixed.principal_axes import PrincipalAxes
from persfl.wire.codec import WireError


class SumsDevice(AskedDevice):
    """One device's rows under the terms of a run."""

    def __init__(self, home: RowsAsked) -> None:
        self.family = SumsFamily(home.terms.learner(), home.terms.features)
        super().__init__(home, self.family)

    def sizes(self, told: dict[str, Any]) -> dict[str, int]:
        """Of a model."""
        return {"size": self.family.size, "wider": self.family.size + 1}

    def work(self, question: Question, names: int) -> int:
        """About how many nanoseconds it takes; never from what the rows say."""
        if isinstance(question, Take):
            return work_of_fit(self.terms, self.rows) if self.terms.holdout else 0
        if isinstance(question, Draw):
            return (self.rows + self.family.size) * (self.family.size + 1) ** 2
        return MANY * self.rows * (self.terms.features + 2) ** 2

    def reply(self, question: Question, names: int) -> DeviceReply:
        """Sums, refits, or how good the model is that it was handed."""
        if isinstance(question, Take):
            return self._taken(question)
        if isinstance(question, Draw):
            return DeviceReply(self._drawn(question))
        assert isinstance(question, PartSums)
        if not self.policy.sums:
            raise Refused("sums")
        part = self.home.stock.parts(self.home.deal, ordered=question.ordered)
        data = self.home.seen([np.flatnonzero(part == k) for k in np.unique(part)])
        Z = PrincipalAxes(self.family.level).inside(data.X)
        start = np.array([0, data.rows])
        told = [
            DeviceSums.of(Z, data.y, data.weight * (part == k), start)
            for k in range(MANY)
        ]
        if not question.ordered or not self.family.level:
            return DeviceReply(self.family.written(told))
        newest = self.home.stock.latest(self.home.deal, part)
        rows = np.column_stack([Z, data.y]) * (data.weight * newest)[:, None]
        latest = np.stack([rows[part == k].sum(axis=0) for k in range(MANY)])
        return DeviceReply(self.family.written(told, latest))

    def _drawn(self, question: Draw) -> dict[str, Any]:
        """Refits toward these centres."""
        asked = Drawing(question.root, question.centres)
        size = np.linalg.svd(asked.root, compute_uv=False)
        if not size[-1] > 1e-12 * size[0]:
            raise WireError("a pull must be above 0 in every direction.")
        data = self.home.seen([np.arange(self.rows)])
        Z = self.family.learner.with_intercept(data.X)
        sums = DeviceSums.of(Z, data.y, data.weight, np.array([0, data.rows]))
        found = drawn_fits(sums, asked)
        return {"models": found.models[0], "left": found.left, "weight": found.weight}

    def _taken(self, question: Take) -> DeviceReply:
        if not self.terms.holdout:
            return DeviceReply({}, question.model)
        rows = self.home.deal.learn, self.home.deal.held
        seed = self.home.stock.lot.seed
        single = self.policy.rows <= 1
        told = judged(self.terms, question.model, *rows, seed, single=single)
        return DeviceReply(dict(told), question.model)
