"""Groups of a blend over a federation: what the algorithm asks them becomes letters to devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from persfl.federation.blend_exchange import Letter
from persfl.federation.messages import parts_of, size_of
from persfl.learners.responses import respond
from persfl.learners.storage.named_arrays import is_sensible
from persfl.methods.blend.adam import adam
from persfl.methods.blend.budget import Budget
from persfl.methods.blend.fixed_point import usual
from persfl.methods.blend.forms import Wire
from persfl.methods.blend.model_forms import one_model
from persfl.methods.blend.offers import RefitOffers
from persfl.methods.blend.question_base import Question, reply_numbers
from persfl.methods.blend.questions import JudgeOffers, Refits, Slopes
from persfl.methods.blend.search import ModelSearchers, Searchers, question_of
from persfl.methods.blend.site import (
    Evidence,
    GroupPlan,
    Starts,
)
from persfl.seeds import stream
from persfl.types import Array, Data, Fleet, IntArray, Model, Proposer
from persfl.wire.codec import WireError, within

if TYPE_CHECKING:
    from persfl.federation.blend_site import FlowerSite

_MISSING = {"weight": 0.0, "losses": np.inf}  # where a target does not tell


Ask = Callable[[list[Letter]], list[Mapping[str, Any]]]


class FlowerBundle:
    """One group: its questions wait for those of the others, and travel with them."""

    def __init__(self, group: FlowerGroup) -> None:
        self.groups = [group]

    def near_descent(
        self,
        which: Sequence[int],
        near: Sequence[IntArray],
        start: Array,
        steps: int,
        rate: float,
    ) -> Array:
        """Every step asks the nearest of every copy."""
        group = self.groups[0]
        who = near[0]
        whose = np.repeat(np.arange(len(who)), who.shape[1])

        def slope(models: Array) -> Array:
            said = group.slopes(models[whose], who.ravel(), whose)
            # of each copy's nearest: what is usual differs from model to model
            said = np.stack([usual(each) for each in said.reshape(*who.shape, -1)])
            good = np.isfinite(said).all(axis=2, keepdims=True)
            many = np.maximum(good.sum(axis=1), 1)
            return np.asarray(np.where(good, said, 0.0).sum(axis=1) / many)

        return adam(slope, start, (steps,), rate)[steps]

    def evidence(self, starts: Sequence[Starts]) -> list[Evidence]:
        """Told by the targets."""
        return [
            group.evidence(each)
            for group, each in zip(self.groups, starts, strict=True)
        ]


class FlowerGroup:
    """See `persfl.methods.blend.site.Group`."""

    def __init__(self, site: FlowerSite, ask: Ask, plan: GroupPlan) -> None:
        self._site = site
        self._ask = ask
        self.family = site.family
        self.plan = plan
        self.look = plan.look
        self.seed = plan.seed
        self.copies = site.copies
        self.peers, self.targets = len(plan.rest), len(plan.mine)
        self.budget = Budget(plan.budget, self.targets, self.copies, self.family.unit)
        weight = site.weight[plan.rest]
        self.weight = np.where(weight > 0, weight, 1.0)

    def ask(
        self, question: Question, who: IntArray, whose: IntArray | None = None
    ) -> dict[str, Any]:
        """A letter to each peer, with everything that it is asked about."""
        self.budget.pay(question.cost, int((who >= 0).sum()))
        each = question.has("names")
        letters = []
        places = []
        for p in np.unique(who[who >= 0]).tolist():
            at = np.flatnonzero(who == p)
            names = [self._name(whose, int(k)) for k in at] if each else []
            part = question.part("names", at) if each else question
            letters.append(Letter(int(self.plan.rest[p]), part, names))
            places.append(at)
        found = self._blank(question, len(who))
        replies = self._ask(letters)
        for letter, told in zip(letters, replies, strict=True):
            self._noted(question, letter.to, told)
        for at, told in zip(places, replies, strict=True):
            for name, values in found.items():
                values[at] = self._read(question, name, told, len(at))
        return found

    def _noted(self, question: Question, device: int, told: Mapping[str, Any]) -> None:
        """Remember how large a device's models are, before any of an exchange is read."""
        for part in () if question.replies else _models(told).values():
            self._site.sizes.note(device, size_of(part))

    def _blank(self, question: Question, many: int) -> dict[str, Any]:
        """Nothing told yet."""
        if not question.replies:
            return {"answers": np.full(many, None, dtype=object)}
        size = self.family.size
        wide = {"names": (many, size)} if question.has("names") else {}
        return {
            name: np.full(wide.get("names", (many,)), np.nan)
            for name in question.replies
        }

    def _read(
        self, question: Question, name: str, told: Mapping[str, Any], many: int
    ) -> Any:
        """A peer's reply, if it is what it should be."""
        if question.replies:
            shape = (many, self.family.size) if question.has("names") else (1,)
            return reply_numbers(told.get(name), shape)
        parts = _models(told)
        found = np.full(many, None, dtype=object)
        for i in range(many):
            part = parts.get(str(i), {})
            try:
                model = one_model(part, self.family)
            except WireError:
                continue
            large = self._site.sizes.is_too_large(size_of(part))
            if not large and self._is_askable(model):
                found[i] = model
        return found

    def _is_askable(self, model: Model) -> bool:
        """Whether what it says at the public points can travel; a question that holds anything
        else would be refused, with all that others ask in it.
        """
        family = self.family
        if not isinstance(family, RefitOffers):
            return True
        with np.errstate(all="ignore"):
            said = respond(family.learner, model, family.public, family.classes)
        return is_sensible(said)

    def own(self, question: Any) -> dict[str, Any]:
        """A letter to each target; one that does not tell has no rows, and so no say."""
        question = _ordered(question, self._site.ordered)
        letters = []
        for t, i in enumerate(self.plan.mine.tolist()):
            mine = slice(t * self.copies, (t + 1) * self.copies)
            letters.append(Letter(i, question.part("copies", mine)))
        told = self._ask(letters)
        shown = getattr(question, "models", None)
        wire = Wire(self.family)
        wire.sizes |= {
            "copies": self.copies,
            "size": self.family.size,
            "many": getattr(question, "many", 0),
            "shown": 0 if shown is None else len(shown),
        }
        found = {}
        for name, words in question.replies.items():
            shape = wire.shape(words)
            each = [reply_numbers(one.get(name), shape) for one in told]
            found[name] = np.concatenate(each, axis=words.index("copies"))
        for name, nothing in _MISSING.items():
            if name in found:
                good = np.isfinite(found[name]) & (found[name] >= 0)
                found[name] = np.where(good, found[name], nothing)
        if found.get("answers") is not None and found["answers"].size:
            said = found["answers"]
            nothing = 0.0 if shown is None or not question.steps else shown[:, None]
            found["answers"] = np.where(np.isfinite(said), said, nothing)
        return found

    def evidence(self, starts: Starts) -> Evidence:
        """Told by the targets; a target that does not tell has no evidence of its own."""
        many = len(self.family.names()) + self.family.extra
        asked = [
            Letter(
                i,
                JudgeOffers(
                    look=self.look,
                    ordered=self._site.ordered,
                    starts=self._site.starts_of(starts, t),
                ),
            )
            for t, i in enumerate(self.plan.mine.tolist())
        ]
        losses = np.full((self.targets, many), np.inf)
        weight = np.zeros(self.targets)
        for t, told in enumerate(self._ask(asked)):
            said = reply_numbers(told.get("losses"), (many,), most=1e100)
            judged = reply_numbers(told.get("weight"), (1,))[0]
            if np.isfinite(said).all() and (said >= 0).all() and judged >= 0:
                losses[t], weight[t] = said, judged
            if judged == 0:
                self._site.foldless.add(self._site.ids[int(self.plan.mine[t])])
        return Evidence(losses, weight, starts)

    def fleet(self, proposer: Proposer, start: Any) -> Fleet:
        """Made of questions."""
        if not isinstance(self.family, RefitOffers):
            return Searchers(self, question_of(proposer, self.look), start)
        return ModelSearchers(self, self._refits, start)

    def _refits(self, models: Any) -> Refits:
        probes = np.full(len(models), None, dtype=object)
        proposer = self.family.proposer
        assert proposer is not None
        for k, model in enumerate(models):
            probes[k] = proposer.ask(self.family.learner, model)
        return Refits(look=self.look, probes=probes)

    def begin(self) -> Array:
        """As the module has them: there are no rows here."""
        many = self.targets * self.copies
        d = self.family.features
        nothing = Data(np.zeros((many, 1, d)), np.zeros((many, 1)))
        found = self.family.learner.init(nothing, stream(self.seed, "start"))
        return np.asarray(found)

    def pooled_descent(self, who: IntArray, steps: int, rate: float) -> Array:
        """Every step asks all of them."""
        weight = self.weight[who][:, None]

        def slope(model: Array) -> Array:
            said = usual(self.slopes(np.tile(model, (len(who), 1)), who))
            good = np.isfinite(said).all(axis=1, keepdims=True)
            total = max(float((weight * good).sum()), 1e-300)
            return np.asarray((weight * np.where(good, said, 0.0)).sum(axis=0) / total)

        start = self.begin()[:1]
        found = adam(lambda w: slope(w[0])[None], start, (steps,), rate)
        return np.asarray(found[steps][0])

    def slopes(
        self, models: Array, who: IntArray, whose: IntArray | None = None
    ) -> Array:
        """(K, size) the gradient of each at its model."""
        question = Slopes(look=self.look, models=models)
        return np.asarray(self.ask(question, who, whose)["answers"])

    def pooled_fit(self, who: IntArray) -> Model | None:
        """Rows are never in one place."""
        return None

    def own_fits(self) -> list[None]:
        """They stay at home."""
        return [None] * (self.targets * self.copies)

    def _name(self, whose: IntArray | None, k: int) -> str:
        if whose is None:
            return ""
        return self._site.ids[int(self.plan.mine[int(whose[k]) // self.copies])]


def _models(told: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """The models that a peer answers with, each as arrays, by their places."""
    return parts_of(within("answers", told))


def _ordered(question: Question, ordered: bool) -> Any:
    """Over a border, folds are dealt when a question says how."""
    return replace(question, ordered=ordered)  # type: ignore[call-arg]
