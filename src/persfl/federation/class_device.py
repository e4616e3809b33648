"""A device's side of a blend of small models of classes: bends of its log chance, its models pulled
to centres, and what its hidden rows say of a pool; its own model is mixed at home.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from persfl.federation.asked_device import AskedDevice, DeviceReply, RowsAsked
from persfl.federation.holdout import judged
from persfl.federation.messages import Refused
from persfl.federation.model_store import mixture_to
from persfl.federation.policy import work_of_fit
from persfl.federation.row_stock import alone
from persfl.federation.told_bends import BendsFamily
from persfl.methods.blend.class_questions import (
    ClassBends,
    ClassFree,
    ClassMix,
    ClassNear,
    ClassPool,
)
from persfl.methods.blend.question_base import Question
from persfl.methods.mixed.class_fits import STEPS
from persfl.methods.mixed.class_home import Centres, ClassHome
from persfl.methods.mixed.class_rule import class_vectors
from persfl.types import Array
from persfl.wire.codec import WireError, nested


class ClassDevice(AskedDevice):
    """One device's rows under the terms of a run."""

    def __init__(self, home: RowsAsked) -> None:
        self.family = BendsFamily.of(home.terms)
        super().__init__(home, self.family)

    def sizes(self, told: dict[str, Any]) -> dict[str, int]:
        """What words in shapes stand for; with a mean there are offers of neighbours."""
        family = self.family
        return {
            "copies": family.copies(told.get("ordered") is True),
            "numbers": family.numbers,
            "offers": family.offers(told.get("near") is True),
        }

    def work(self, question: Question, names: int) -> int:
        """About how many nanoseconds it takes; never from what the rows say."""
        family = self.family
        once = self.rows * family.numbers * family.copies(False)
        if isinstance(question, ClassBends):
            return question.many * self.rows * family.numbers**2
        if isinstance(question, ClassNear):
            return once * (question.many + STEPS)
        own = work_of_fit(self.terms, self.rows) if self.terms.holdout else 0
        fits = family.offers(True)
        seen = 0
        if isinstance(question, ClassMix):
            fits = 2 * fits  # those of own rows alone as well
            seen = question.many
        return once * (fits * STEPS + seen) + own

    def reply(self, question: Question, names: int) -> DeviceReply:
        """The answer to a question."""
        if isinstance(question, ClassMix):
            return self._mixed(question)
        if isinstance(question, ClassBends):
            return DeviceReply(self._bends(question))
        if isinstance(question, ClassFree):
            home = self._home(question.ordered)
            free = home.free(question.slopes, self.family.models(question.fleet))
            return DeviceReply({"models": _flat(free)})
        if isinstance(question, ClassNear):
            return DeviceReply(self._near(question))
        assert isinstance(question, ClassPool)
        return DeviceReply(self._pool(question))

    def _home(self, ordered: bool) -> ClassHome:
        part = self.home.stock.parts(self.home.deal, ordered=ordered)
        return ClassHome(
            alone(self.terms.inside(self.home.deal.learn)),
            part,
            classes=self.family.classes,
            level=self.family.level,
            ordered=ordered,
        )

    def _bends(self, question: ClassBends) -> dict[str, Array]:
        if not self.policy.sums:
            raise Refused("sums")
        if question.many not in (1, self.family.copies(question.ordered)):
            raise WireError("bends are of one model, or of one for each copy.")
        home = self._home(question.ordered)
        found = home.bends(self.family.models(question.models))
        return self.family.written(home, found)

    def _near(self, question: ClassNear) -> dict[str, Array]:
        home = self._home(question.ordered)
        centres = self.family.models(question.centres)
        picked, models = home.near(question.slopes, centres)
        return {
            "places": picked.places.astype(np.float64),
            "shares": picked.share,
            "models": _flat(models),
        }

    def _pool(self, question: ClassPool) -> dict[str, Array]:
        if not self.policy.sums:
            raise Refused("sums")
        home = self._home(question.ordered)
        # by another design these rows would count for less: a row or two, that the asker chooses
        design = question.design if self.policy.rows <= 1 else 1.0
        found = home.pool(self._centres(question), design, question.shares)
        upper = np.triu_indices(len(question.shares))
        return {
            "slope": found.slope,
            "curve": found.curve[upper],
            "weight": np.array([home.judged(design).weight.sum()]),
        }

    def _centres(self, question: ClassPool | ClassMix) -> Centres:
        models = self.family.models
        if question.near != (question.mean is not None):
            raise WireError("neighbours are told by the mean of their models.")
        mean = None if question.mean is None else models(question.mean)
        return Centres(question.slopes, models(question.fleet), mean)

    def _mixed(self, question: ClassMix) -> DeviceReply:
        if abs(float(question.shares.sum()) - 1) > 1e-6:
            raise WireError("shares must sum to 1.")
        home = self._home(question.ordered)
        mixed = home.mixed(self._centres(question), question.shares)
        model = class_vectors(self.family.learner, mixed.model.T[None])[0]
        found = nested("model", mixture_to(self.terms, model))
        found["own"] = mixed.own
        found |= self._seen(question, home)
        if not self.terms.holdout:
            return DeviceReply(found, model)
        rows = self.home.deal.learn, self.home.deal.held
        seed = self.home.stock.lot.seed
        single = self.policy.rows <= 1
        told = judged(self.terms, model, *rows, seed, single=single)
        return DeviceReply(found | told, model)

    def _seen(self, question: ClassMix, home: ClassHome) -> dict[str, Array]:
        """How likely centres are, and what the fleet's model and each of them lose."""
        centres = self.family.models(question.centres)
        fleet = self.family.models(question.fleet)[:1]
        shown = np.moveaxis(np.concatenate([fleet, centres]), 1, 2)
        learner = self.family.learner
        data = self.terms.inside(self.home.deal.learn)
        vectors = class_vectors(learner, shown)
        losses = np.array([float(learner.loss(each, data)) for each in vectors])
        posterior = np.zeros(0)
        if question.many:
            posterior = home.posterior(question.slopes, centres)
        return {"posterior": posterior, "losses": losses}


def _flat(models: Array) -> Array:
    """(copies, numbers)."""
    return models.reshape(len(models), -1)
