"""A device's side of blend: small questions, many in one message, each answered from its own rows
alone. `persfl.methods.blend.questions` lists them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import sklearn

from persfl.devices import Devices
from persfl.errors import InputError
from persfl.federation.asked_device import AskedDevice, DeviceReply, RowsAsked
from persfl.federation.holdout import judged
from persfl.federation.last_look import Alone, is_worse
from persfl.federation.messages import Refused
from persfl.federation.model_store import mixture_to
from persfl.federation.policy import work_of, work_of_fit, work_of_walk
from persfl.federation.row_stock import alone
from persfl.federation.tree_leaves import sheltered
from persfl.methods.blend.folds import Folding, TargetRows
from persfl.methods.blend.linear_rows import spreads
from persfl.methods.blend.offers import Descent, Offers, RefitOffers, offers_for
from persfl.methods.blend.question_base import Question
from persfl.methods.blend.questions import (
    Falls,
    Fit,
    GradientSteps,
    JudgeOffers,
    Mix,
    OwnRows,
    Slopes,
    Spread,
    Weigh,
    Weight,
)
from persfl.methods.blend.views import ViewSettings
from persfl.types import Data, IntArray, Learner
from persfl.wire.codec import WireError, nested
from persfl.wire.models import model_to
from persfl.wire.terms import Terms

_LARGEST_LOSS = 1e100


def family_of(terms: Terms) -> Offers:
    """How models of these terms are blended; a WireError where they cannot be."""
    try:
        return offers_for(
            terms.learner(),
            terms.features,
            classes=terms.classes,
            public=terms.public,
        )
    except InputError:
        raise WireError("a blend of trees must come with public points.") from None


@dataclasses.dataclass(frozen=True)
class OwnFolding(Folding):
    """Folds that the device has dealt itself."""

    folds: Any = None

    def of(self, rows: Devices, numbers: IntArray) -> IntArray:
        """Whatever the numbers of devices are: this is one."""
        return np.asarray(self.folds)


class BlendDevice(AskedDevice):
    """One device's rows under the terms of a run, as blend asks about them."""

    def __init__(self, home: RowsAsked) -> None:
        self.family = family_of(home.terms)
        super().__init__(home, self.family)
        self._targets_rows: dict[bool, TargetRows] = {}

    # What is asked

    def sizes(self, told: dict[str, Any]) -> dict[str, int]:
        """What words in shapes stand for, in this question."""
        family = self.family
        ordered = told.get("ordered") is True
        return {
            "features": family.features,
            "size": family.size,
            "copies": Folding(family.classes, ordered).count + 1,
            "offers": len(family.names()) * len(family.views),
        }

    def allowed(self, question: Question) -> None:
        """Refuse more steps than the owner allows."""
        if not isinstance(question, (GradientSteps, Falls, OwnRows)):
            return
        if question.steps is None:
            return
        step = question.step or 1.0
        longer = dataclasses.replace(self.terms, steps=question.steps, step_size=step)
        no = self.policy.refuses(longer, self.rows)
        if no is not None:
            raise Refused(no)

    def work(self, question: Question, names: int) -> int:
        """About how many nanoseconds it takes; never from what the rows say."""
        return work_of_question(self.family, self.terms, question, self.rows, names)

    # What is answered

    def reply(self, question: Question, names: int) -> DeviceReply:
        """The answer to a question on behalf of so many."""
        quiet = {"assume_finite": True, "skip_parameter_validation": True}
        with sklearn.config_context(**quiet):
            if isinstance(question, Mix):
                return self._mixed(question)
            if isinstance(question, JudgeOffers):
                return DeviceReply(self._judged(question))
            if isinstance(question, (OwnRows, Weigh)):
                targets = self._targets(question.look, question.ordered)
                return DeviceReply(self._written(targets.answer(question)))
            return DeviceReply(self._answered(question, names))

    def _answered(self, question: Any, names: int) -> dict[str, Any]:
        if isinstance(question, Spread):
            if not self.policy.sums:
                raise Refused("sums")
            rows = (
                self.home.deal.learn
            )  # whatever the loss, only moments of them are told
            rows = self.home.likenesses.of(rows) if self.policy.rows > 1 else rows
            told = spreads(alone(self.terms.inside(rows)))
            return {"weight": told.weight, "squares": told.squares[0]}
        if isinstance(question, Weight):
            return {"weight": np.array([self.home.deal.learn.weight.sum()])}
        one = alone(self._seen(np.zeros(self.rows, dtype=np.int64)))
        peers = self.family.peers(one, question.look, *self._how("answer"))
        many = names if question.has("names") else 1
        nobody = np.zeros(many, dtype=np.int64)
        return self._written(peers.answer(question, nobody))

    def _judged(self, question: JudgeOffers) -> dict[str, Any]:
        targets = self._targets(question.look, question.ordered)
        losses, weight = targets.judged(targets.offers(question.starts))
        most = _LARGEST_LOSS
        told = np.minimum(np.nan_to_num(losses[0], nan=most, posinf=most), most)
        return {"losses": told, "weight": weight}

    def _mixed(self, question: Mix) -> DeviceReply:
        shares = question.shares
        if not (shares >= 0).all() or not abs(float(shares.sum()) - 1) < 1e-6:
            raise WireError("shares must sum to 1.")
        wide = len(self.family.names())
        own: TargetRows = self._rows_as_target(question.ordered)
        copies = own.folding.count + 1
        here = np.arange(copies)
        parts = []
        alone_ = list[Alone]()
        for k, (look, starts) in enumerate(question.views):
            targets = self._targets(look, question.ordered)
            offers = targets.offers(starts)
            mix = shares[None, k * wide : (k + 1) * wide]
            parts.append((here, self.family.mixed(offers, np.repeat(mix, copies, 0))))
            alone_.append(self._alone(k, targets, offers))
        models = self.family.models(copies, parts)
        mine = min(alone_, key=lambda each: each.loss)
        worse = is_worse(self.terms.learner(), own, models, mine)
        model = mine.model if worse else models[0]
        found = nested("model", mixture_to(self.terms, model))
        found["alone"] = np.array([float(worse)])
        if not self.terms.holdout:
            return DeviceReply(found, model)
        seed = self.home.stock.lot.seed
        single = self.policy.rows <= 1
        rows = self.home.deal.learn, self.home.deal.held
        told = judged(self.terms, model, *rows, seed, single=single)
        return DeviceReply(found | told, model)

    def _alone(self, view: int, targets: Any, offers: Any) -> Alone:
        """Of what this view offers, the best of own rows alone, by folds."""
        family = self.family
        losses, weight = targets.judged(offers)
        found = [k for k, name in enumerate(family.names()) if name.startswith("own")]
        best = min(found, key=lambda k: np.nan_to_num(losses[0, k], nan=np.inf))
        mix = np.zeros((1, len(family.names())))
        mix[0, best] = 1.0
        here = np.zeros(1, dtype=np.int64)
        mixed = family.mixed(targets.whole(offers), mix)
        # models of other views are nothing beside it
        model = family.models(1, [(here, mixed)])[0]
        return Alone(model, float(losses[0, best]) if weight[0] > 0 else np.inf)

    # From which rows

    def _seen(self, folds: IntArray) -> Data:
        """Rows in the units of the run; where moments are all that is told, each fold's moments."""
        return self.home.seen([np.flatnonzero(folds == f) for f in np.unique(folds)])

    def _targets(self, look: ViewSettings, ordered: bool) -> Any:
        rows = self._rows_as_target(ordered)
        return self.family.targets(rows, look, *self._how("own"))

    def _rows_as_target(self, ordered: bool) -> TargetRows:
        if ordered not in self._targets_rows:
            classes = self.terms.classes
            count = Folding(classes, ordered).count
            if isinstance(self.family, RefitOffers):
                # without a fold, too, there must be enough rows for a leaf
                count = min(count, self.rows // max(self.policy.rows_per_leaf, 1))
            folds = self.home.stock.folds(
                self.home.deal, max(count, 1), classes=classes, ordered=ordered
            )
            folding = OwnFolding(classes, ordered, folds=folds)
            rows = alone(self._seen(folds))
            nobody = np.zeros(1, dtype=np.int64)
            self._targets_rows[ordered] = TargetRows(rows, folding, nobody)
        return self._targets_rows[ordered]

    def _how(self, what: str) -> tuple[Any, ...]:
        """Trees are grown at a place that only the device knows, and leaves rest on enough rows."""
        if not isinstance(self.family, RefitOffers):
            return ()
        place = self.home.stock.lot.at("blend", what)
        return (lambda _: place), partial(_shelter, self.policy.rows_per_leaf)

    def _written(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """As arrays."""
        found: dict[str, Any] = {}
        for name, value in told.items():
            if value.dtype != object:
                found[name] = np.asarray(value, dtype=np.float64)
                continue
            for i, model in enumerate(value):
                arrays = model_to(self.family.learner, model)
                found |= nested(f"{name}.{i}", arrays)
        return found


def _shelter(least: int, learner: Learner, rows: int) -> Learner:
    """The learner, if what it grows from so many private rows may leave."""
    found: Learner = sheltered(learner, rows, least)
    return found


def work_of_question(
    family: Offers, terms: Terms, question: Question, rows: int, names: int
) -> int:
    """About how many nanoseconds a question takes; never from what the rows say."""
    copies = 1 + Folding(terms.classes, getattr(question, "ordered", False)).count
    size = max(family.size, 1)
    once = rows * size  # a gradient
    fit = (rows + size) * size**2  # a system of equations
    if isinstance(family, RefitOffers):
        once = rows * (terms.features + 1) + work_of_walk(terms, rows)
        fit = work_of(terms, rows)
    steps = getattr(question, "steps", None) or 1
    if isinstance(question, Spread):
        return rows * (terms.features + 1) ** 2
    if isinstance(question, (GradientSteps, Slopes)):
        return names * steps * once
    if isinstance(question, Falls):
        return (steps + 2) * once
    if isinstance(question, OwnRows):
        shown = 0 if question.models is None else len(question.models)
        return copies * (1 + shown * steps) * once
    if isinstance(question, Weigh):
        alone_ = copies * fit if isinstance(family, RefitOffers) else 0
        return copies * question.many * once + alone_
    if isinstance(question, (JudgeOffers, Mix)):
        many = len(question.views) if isinstance(question, Mix) else 1
        last = work_of_fit(terms, rows) if isinstance(question, Mix) else 0
        return many * copies * _offers(family, once, fit) + last
    return (names if not isinstance(question, Fit) else 1) * fit


def _offers(family: Offers, once: int, fit: int) -> int:
    """What one copy's offers take."""
    if isinstance(family, RefitOffers):
        chosen = family.settings.refits
        return fit * (1 + len(chosen.own_weights) * (1 + chosen.together))
    if isinstance(family, Descent):
        steps = family.settings.descent
        return once * (max(steps.own_steps) + 6 * max(steps.tuning_steps))
    longest = max(family.settings.steps.own_steps)
    return len(family.names()) * longest * once
