"""A device's side of a blend of counts or robust losses: sums over working rows, at models that it
is asked about, and over hidden rows at mixes of offers; then it is handed its model.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from persfl.federation.asked_device import AskedDevice, DeviceReply, RowsAsked
from persfl.federation.holdout import judged
from persfl.federation.loss_look import SLOPES, HandedModel, kept_model
from persfl.federation.messages import Refused
from persfl.federation.policy import work_of_fit
from persfl.federation.row_stock import alone
from persfl.federation.told_losses import LossFamily
from persfl.methods.blend.loss_questions import LossPlaces, LossShares, LossTake
from persfl.methods.blend.question_base import Question
from persfl.methods.mixed.hidden_rows import PARTS
from persfl.methods.mixed.loss_home import AskedAt, LossHome
from persfl.methods.mixed.principal_axes import PrincipalAxes
from persfl.methods.mixed.working_rows import ROUNDS, is_reach
from persfl.types import Array
from persfl.wire.codec import WireError

FITS = len(SLOPES) * (1 + PARTS)  # of own rows alone


class LossDevice(AskedDevice):
    """One device's rows under the terms of a run."""

    def __init__(self, home: RowsAsked) -> None:
        self.family = LossFamily.of(home.terms)
        super().__init__(home, self.family)

    def sizes(self, told: dict[str, Any]) -> dict[str, int]:
        """What words in shapes stand for."""
        family = self.family
        folds = family.folds(told.get("ordered") is True)
        return {"size": family.size, "offers": family.offers, "folds": folds}

    def work(self, question: Question, names: int) -> int:
        """About how many nanoseconds it takes; never from what the rows say."""
        size = self.family.size
        if isinstance(question, LossPlaces):
            return question.many * self.rows * (size + 2) ** 2
        if isinstance(question, LossShares):
            return self.rows * (self.family.offers + 2) * (size + self.family.offers)
        assert isinstance(question, LossTake)
        own = work_of_fit(self.terms, self.rows) if self.terms.holdout else 0
        alone = FITS * ROUNDS * (self.rows + size) * size**2
        return question.many * self.rows * size + alone + own

    def reply(self, question: Question, names: int) -> DeviceReply:
        """Sums, or how good the model is that it was handed."""
        if isinstance(question, LossTake):
            return self._taken(question)
        if not self.policy.sums:
            raise Refused("sums")
        if isinstance(question, LossPlaces):
            return DeviceReply(self._places(question))
        assert isinstance(question, LossShares)
        return DeviceReply(self._shares(question))

    def _home(self, ordered: bool) -> LossHome:
        rows = alone(self.terms.inside(self.home.deal.learn))
        Z = PrincipalAxes(self.family.level).inside(rows.X)
        part = self.home.stock.parts(self.home.deal, ordered=ordered)
        return LossHome.alone(rows, Z, self.family.learner, part, ordered=ordered)

    def _places(self, question: LossPlaces) -> dict[str, Array]:
        many = 1 + self.family.folds(question.ordered)
        if not np.isin(question.copies, np.arange(many)).all():
            raise WireError("copies are all rows, or those without a part.")
        each = zip(
            question.copies.astype(int).tolist(),
            question.starts[:, None],
            question.ends[:, None],
            map(self._reach, question.reach.tolist()),
            strict=True,
        )
        told = self._home(question.ordered).told([AskedAt(*place) for place in each])
        part = np.concatenate([one.part for one in told])
        return self.family.written([one.sums for one in told]) | {"part": part}

    def _shares(self, question: LossShares) -> dict[str, Array]:
        if abs(float(question.shares.sum()) - 1) > 1e-6:
            raise WireError("shares must sum to 1.")
        home = self._home(question.ordered)
        reach = self._reach(question.reach)
        hidden = home.judged(list(question.models[:, :, None]), np.ones(1), reach)
        return self.family.written([hidden.sums(question.shares, reach)])

    def _reach(self, told: float) -> float:
        if not is_reach(self.family.learner, told):
            raise WireError("a reach must be of a sensible size.")
        return told

    def _taken(self, question: LossTake) -> DeviceReply:
        learner = self.family.learner
        rows = self.home.deal.learn, self.home.deal.held
        data = self.terms.inside(rows[0])
        losses = np.zeros(0)
        if question.many:
            losses = np.asarray(learner.loss(question.shown, data))
        parts = self._home(question.ordered).hidden
        handed = HandedModel(question.model, question.hidden)
        kept = kept_model(learner, data, parts, handed)
        own = np.array([float(kept.own)])
        found: dict[str, Any] = {"losses": losses, "model": kept.model, "own": own}
        if not self.terms.holdout:
            return DeviceReply(found, kept.model)
        seed = self.home.stock.lot.seed
        single = self.policy.rows <= 1
        told = judged(self.terms, kept.model, *rows, seed, single=single)
        return DeviceReply(found | told, kept.model)
