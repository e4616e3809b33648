"""A device's side of blend: small questions, many in one message, each answered from its own rows
alone. `persfl.methods.blend.questions` lists them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import sklearn

from persfl.devices import Devices
from persfl.errors import InputError
from persfl.federation.blend_work import work_of_question
from persfl.federation.holdout import judged
from persfl.federation.messages import MOST, Arrays, Refused, digest_of
from persfl.federation.moment_rows import Likenesses, by_moments
from persfl.federation.policy import Policy
from persfl.federation.row_stock import Deal, Stock, alone
from persfl.federation.tree_leaves import sheltered
from persfl.methods.blend.folds import Folding, TargetRows
from persfl.methods.blend.forms import Wire
from persfl.methods.blend.linear_rows import spreads
from persfl.methods.blend.offers import Offers, RefitOffers, offers_for
from persfl.methods.blend.questions import (
    KINDS,
    Falls,
    GradientSteps,
    JudgeOffers,
    Mix,
    OwnRows,
    Question,
    Spread,
    Weigh,
    Weight,
    checked,
)
from persfl.methods.blend.views import ViewSettings
from persfl.traits import traits_of
from persfl.types import Data, IntArray, Learner
from persfl.wire import Terms, WireError, model_to, nested

AS_TARGET = tuple(kind for kind, one in KINDS.items() if one.target)
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


class BlendDevice:
    """One device's rows under the terms of a run, as blend asks about them."""

    def __init__(
        self,
        terms: Terms,
        deal: Deal,
        stock: Stock,
        policy: Policy,
        likenesses: Likenesses,
    ) -> None:
        self.terms = terms
        self.deal = deal
        self.stock = stock
        self.policy = policy
        self.family = family_of(terms)
        self._likenesses = likenesses
        self._rows: dict[bool, TargetRows] = {}

    # What is asked

    def question(self, asked: Any, arrays: Arrays, names: Sequence[str]) -> Question:
        """The question that came, if this device answers such ones."""
        told = asked if isinstance(asked, dict) else {}
        if told.get("what") in AS_TARGET and not self.policy.target:
            raise Refused("target")
        ordered = told.get("ordered") is True
        family = self.family
        found: Question = checked(
            told,
            arrays,
            family,
            names=len(names),
            features=family.features,
            size=family.size,
            copies=Folding(family.classes, ordered).count + 1,
            offers=len(family.names()) * len(family.views),
        )
        if (
            isinstance(found, (GradientSteps, Falls, OwnRows))
            and found.steps is not None
        ):
            longer = dataclasses.replace(
                self.terms, steps=found.steps, step_size=found.step or 1.0
            )
            no = self.policy.refuses(longer, self.deal.learn.rows)
            if no is not None:
                raise Refused(no)
        return found

    def digests(self, said: Any, question: Question, names: Sequence[str]) -> list[str]:
        """One for each name: the same for the same question to the same rows, whenever and in
        whatever company it comes. What all of them share is read once, however many there are.
        """
        forms = question.forms()
        family = self.family
        shared = Wire(family, {"what": question.kind})
        apart = dict[str, Any]()
        for name, form in forms.items():
            value = getattr(question, name)
            if form.along("names"):
                apart[name] = value
            elif value is not None:
                form.write(name, value, shared)
        same = digest_of(("blend", said, sorted(shared.head.items())), shared.arrays)
        found = []
        for i, asker in enumerate(names):
            own = Wire(family)
            for name, value in apart.items():
                one = forms[name].part(value, "names", slice(i, i + 1))
                forms[name].write(name, one, own)
            found.append(digest_of((same, asker), own.arrays))
        return found

    def work(self, question: Question, names: int) -> int:
        """About how many nanoseconds it takes; never from what the rows say."""
        return work_of_question(self.family, self.terms, question, self._count, names)

    @property
    def _count(self) -> int:
        return self.deal.learn.rows

    # What is answered

    def reply(self, question: Question, names: int) -> dict[str, Any]:
        """The arrays of an answer, to a question on behalf of so many."""
        quiet = {"assume_finite": True, "skip_parameter_validation": True}
        with sklearn.config_context(**quiet):
            if isinstance(question, Mix):
                return self._mixed(question)
            if isinstance(question, JudgeOffers):
                return self._judged(question)
            if isinstance(question, (OwnRows, Weigh)):
                targets = self._targets(question.look, question.ordered)
                return self._written(targets.answer(question))
            return self._answered(question, names)

    def _answered(self, question: Any, names: int) -> dict[str, Any]:
        if isinstance(question, Spread):
            if not self.policy.sums:
                raise Refused("sums")
            rows = self.deal.learn  # whatever the loss, only moments of them are told
            rows = self._likenesses.of(rows) if self.policy.rows > 1 else rows
            squared = traits_of(self.family.learner).loss == "squared"
            told = spreads(alone(self.terms.inside(rows)), squared)
            squares = told.squares[0]
            return {"weight": told.weight, "squares": squares, "label": told.label}
        if isinstance(question, Weight):
            return {"weight": np.array([self.deal.learn.weight.sum()])}
        one = alone(self._seen(np.zeros(self._count)))
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

    def _mixed(self, question: Mix) -> dict[str, Any]:
        shares = question.shares
        if not (shares >= 0).all() or not abs(float(shares.sum()) - 1) < 1e-6:
            raise WireError("shares must sum to 1.")
        wide = len(self.family.names())
        here = np.zeros(1, dtype=np.int64)
        parts = []
        for k, (look, starts) in enumerate(question.views):
            targets = self._targets(look, question.ordered)
            offers = targets.whole(targets.offers(starts))
            mix = shares[None, k * wide : (k + 1) * wide]
            parts.append((here, self.family.mixed(offers, mix)))
        model = self.family.models(1, parts)[0]
        found: dict[str, Any] = {"model": model}
        if not self.terms.holdout:
            return found
        seed = self.stock.lot.seed
        single = self.policy.rows <= 1
        rows = self.deal.learn, self.deal.held
        return found | judged(self.terms, model, *rows, seed, single=single)

    # From which rows

    def _seen(self, folds: IntArray | Any) -> Data:
        """Rows in the units of the run; where moments are all that is told, each fold's moments."""
        rows = self.deal.learn
        if self.policy.rows > 1 and by_moments(self.terms):
            parts = [np.flatnonzero(folds == f) for f in np.unique(folds)]
            rows = self._likenesses.within(rows, parts)
        return self.terms.inside(rows)

    def _targets(self, look: ViewSettings, ordered: bool) -> Any:
        if ordered not in self._rows:
            classes = self.terms.classes
            count = Folding(classes, ordered).count
            if isinstance(self.family, RefitOffers):
                # without a fold, too, there must be enough rows for a leaf
                count = min(count, self._count // max(self.policy.rows_per_leaf, 1))
            folds = self.stock.folds(
                self.deal, max(count, 1), classes=classes, ordered=ordered
            )
            folding = OwnFolding(classes, ordered, folds=folds)
            rows = alone(self._seen(folds))
            nobody = np.zeros(1, dtype=np.int64)
            self._rows[ordered] = TargetRows(rows, folding, nobody)
        return self.family.targets(self._rows[ordered], look, *self._how("own"))

    def _how(self, what: str) -> tuple[Any, ...]:
        """Trees are grown at a place that only the device knows, and leaves rest on enough rows."""
        if not isinstance(self.family, RefitOffers):
            return ()
        place = self.stock.lot.at("blend", what)
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


def names_of(asked: Any) -> list[str]:
    """On whose behalf each model of a question is sent; "" is the run itself."""
    names = asked.get("names", [""]) if isinstance(asked, dict) else None
    if (
        not isinstance(names, list)
        or not 0 < len(names) <= MOST
        or not all(isinstance(n, str) and len(n) <= 200 for n in names)
    ):
        raise WireError("a question must say on whose behalf it is asked.")
    return names
