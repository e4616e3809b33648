"""What a protected device says to each kind of message; all of it goes through its desk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from persfl.federation.adoptions import adoption_from, adoption_heads
from persfl.federation.asked_device import names_of
from persfl.federation.device_peer import code_of
from persfl.federation.inquiry import LONGEST_NAME, Inquiry
from persfl.federation.leaves_desk import forest_at_home, leaves_told
from persfl.federation.messages import (
    MOST,
    Arrays,
    Content,
    Refused,
    askers_of,
    parts_of,
    whole_of,
)
from persfl.federation.model_store import HOME, StoredModel
from persfl.federation.private_desk import PrivateDesk, RowsSeen
from persfl.federation.private_sums import device_sums
from persfl.federation.row_stock import alone
from persfl.federation.told_leaves import LeavesFamily
from persfl.federation.told_sums import MANY, SumsFamily
from persfl.federation.told_terms import tells_leaves, tells_sums
from persfl.learners.linear import Linear
from persfl.methods.blend.questions import checked
from persfl.methods.mixed.device_sums import DeviceSums
from persfl.methods.private.home_finish import Outside, finished_at_home
from persfl.seeds import stream
from persfl.types import Array, Data, Model
from persfl.wire import WireError, nested

# Models that others' words alone led to; no run has so long a name (see HOME).
TOLD = "told:".ljust(LONGEST_NAME + 1)


class PrivateMessages:
    """The kinds of messages, as a device has them."""

    def __init__(self, desk: PrivateDesk, log: Callable[[str], None]) -> None:
        self.desk = desk
        self.home = desk.home
        self._log = log

    def kinds(self) -> dict[str, Callable[[Inquiry], Content]]:
        """By their names."""
        return {
            "describe": self.desk.describe,
            "answer": self.answer,
            "score": self.score,
            "adopt": self.adopt,
            "blend": self.blend,
        }

    def _code(self, error: Exception, question: Inquiry) -> str:
        return code_of(error, "a question", question.round, self._log)

    def _news(self) -> dict[str, int]:
        return {"rows": self.desk.settings.rows, "new": 0}

    # As a peer

    def answer(self, question: Inquiry) -> Content:
        """A noised step for each target that asks, and the noised numbers of rows that it was
        divided by, so that who adds steps up can weigh them.
        """
        names = askers_of(question.head.get("names"))
        self.desk.check(question, len(names))
        parts = parts_of(question.arrays)
        codes: list[str] = []
        seen = np.zeros((len(names), 2))
        out: dict[str, NDArray[Any]] = {"seen": seen}
        for i, name in enumerate(names):
            given: dict[str, NDArray[Any]] = {}
            code = "ok"
            try:
                probe = question.codec.probe_from(parts.get(f"q{i}", {}))
                step, rows = self._step(question, probe, name)
                seen[i] = np.array(rows)
                given = question.codec.model_to(step)
            except Exception as error:
                code = self._code(error, question)
            codes.append(code)
            out |= nested(f"p{i}", given)
            self.desk.write(question, "answer", name, given, code)
        return {"codes": codes, **self._news()}, out

    def _step(
        self, question: Inquiry, model: Array, name: str
    ) -> tuple[Array, RowsSeen]:
        """Where its rows would take a model, as far as noise lets see."""
        terms = question.terms
        if self._from_sums(question):
            slope, rows = self._slope(question, model)
        else:
            total, rows = self.desk.gradient(question, model, name)
            slope = total / rows.divisor
        moved = np.asarray(model - terms.step_size * slope)
        return moved.astype(model.dtype), rows  # networks have numbers of their own

    def _from_sums(self, question: Inquiry) -> bool:
        """Whether steps follow from sums, which cost nothing once they are told."""
        columns = self.home.source(question.round).columns
        told = self.desk.tells_sums([str(name) for name in columns])
        return told and tells_sums(question.terms)

    def _slope(self, question: Inquiry, model: Array) -> tuple[Array, RowsSeen]:
        """The gradient of squared loss, from sums."""
        learner = question.codec.learner
        assert isinstance(learner, Linear)
        matrix = self.desk.sums(question).inside(question.terms)
        sums = device_sums(matrix, learner.intercept)
        # models have their intercept last, sums first
        w = np.roll(model, 1) if learner.intercept else model
        rows = float(sums.weight[0])
        slope = 2.0 * (sums.square[0] @ w - sums.product[0]) / rows
        turned = np.roll(slope, -1) if learner.intercept else slope
        return np.asarray(turned), RowsSeen(rows, rows)

    # As a target

    def adopt(self, question: Inquiry) -> Content:
        """Take what was chosen; the new probe, which own rows had no part in."""
        stored = self._now(question)
        out: dict[str, NDArray[Any]] = {}
        if question.head.get("probe"):
            probe = question.codec.probe_of(stored.model)
            out = nested("probe", question.codec.probe_to(probe))
        self.desk.write(question, "adopt", self.home.name, out)
        return {"rows": self.desk.settings.rows, "after": stored.round}, out

    def score(self, question: Inquiry) -> Content:
        """Noised losses of its model and of every proposal; on request a noised step."""
        stored = self._now(question)
        count = whole_of(question.head, "count", most=MOST)
        if question.head.get("judge") and not count:
            self._finish(question, stored.model)
            return self._news(), {}
        self.desk.check(question, count + 1)
        codec = question.codec
        parts = parts_of(question.arrays)
        models = [codec.model_from(parts.get(f"p{i}", {})) for i in range(count)]
        told = self._losses(question, np.stack([stored.model, *models]))
        lengths = [float(np.linalg.norm(model - stored.model)) for model in models]
        out = {"own": told[:1], "losses": told[1:], "lengths": np.array(lengths)}
        if question.head.get("step"):
            step, _ = self._step(question, stored.model, self.home.name)
            out |= nested("step", codec.model_to(step))
        self.desk.write(question, "score", self.home.name, out)
        return self._news(), out

    def _losses(self, question: Inquiry, models: Array) -> Array:
        """(models,) mean losses: of squared loss from sums, where these are told."""
        if not self._from_sums(question):
            return self.desk.losses(question, models)
        learner = question.codec.learner
        assert isinstance(learner, Linear)
        matrix = self.desk.sums(question).inside(question.terms)
        sums = device_sums(matrix, learner.intercept)
        turned = np.roll(models, 1, axis=1) if learner.intercept else models
        return np.asarray(sums.missed(turned)[0])

    def _now(self, question: Inquiry) -> StoredModel:
        """Its model after everything it was told to adopt: others' words alone."""
        if not self.home.policy.target:
            raise Refused("target")
        self.desk.check(question)
        terms = question.terms
        if terms.start not in (None, "zeros") or terms.local is not None:
            raise Refused("privacy")  # models that own rows would have a part in
        codec = question.codec
        run = TOLD + question.run
        stored = before = self.home.shelf.get(run)
        if stored is None:
            nothing = Data(np.zeros((1, terms.features)), np.zeros(1))
            start = codec.learner.init(nothing, stream(terms.seed, "start"))
            stored = StoredModel(0, start, terms)
        parts = parts_of(question.arrays)
        for i, head in enumerate(adoption_heads(question.head.get("adoptions", []))):
            if head["round"] < stored.round and not head["set"]:
                continue
            if head["round"] > stored.round and not head["set"]:
                raise Refused("state")
            told = adoption_from(codec, head, parts.get(f"a{i}", {}))
            model = codec.mixed(stored.model, told.pieces, told.weights, told.stay)
            stored = StoredModel(told.round + 1, model, terms)
        if not isinstance(stored.model, np.ndarray):
            raise Refused("privacy")
        if stored is not before and not self._keep(run, stored):
            raise Refused("disk")
        return stored

    def _keep(self, run: str, stored: StoredModel) -> bool:
        """Whether there was room for a model: half is for those that stay, and half for others."""
        half = self.home.policy.disk // 2
        return self.home.shelf.put(run, stored, most=half)

    def _finish(self, question: Inquiry, model: Array) -> None:
        """Refine the model of a run with own rows, without noise."""

        def refined() -> Model:
            rows = alone(self.desk.rows(question))
            learner = question.codec.learner
            told = Outside(model[None])
            return finished_at_home(learner, rows, told, self.home.lot.seed)[0]

        self._keep_home(question, model, refined)

    def _keep_home(
        self, question: Inquiry, usual: Model, refined: Callable[[], Model]
    ) -> None:
        """Keep a refined model: it never leaves, and whether refining or keeping it went well does
        not show, nor whether there was room for it.
        """
        model = usual
        kept = False
        try:
            model = refined()
        except Exception as error:
            self._code(error, question)
        stored = StoredModel(question.round + 1, model, question.terms)
        try:
            kept = self._keep(HOME + question.run, stored)
        except Exception as error:
            self._code(error, question)
        if not kept:
            self._log(
                f"no room for the model of run {question.run!r}: raise disk in the policy"
            )

    # Blend of linear models under squared loss, and of trees

    def blend(self, question: Inquiry) -> Content:
        """Sums once, and a model in return."""
        self.desk.check(question)
        asks = question.head.get("asks")
        if not isinstance(asks, list) or len(asks) > MOST:
            raise WireError("questions must be a list.")
        if not (tells_sums(question.terms) or tells_leaves(question.terms)):
            raise Refused("privacy")
        asked_of = self._asked if tells_sums(question.terms) else self._asked_of_trees
        parts = parts_of(question.arrays)
        codes: list[str] = []
        out: dict[str, NDArray[Any]] = {}
        for i, asked in enumerate(asks):
            found: Arrays = {}
            code = "ok"
            what = "blend"
            try:
                names_of(asked)
                what, found = asked_of(question, asked, parts.get(f"k{i}", {}))
            except Exception as error:
                code = self._code(error, question)
            codes.append(code)
            out |= nested(f"k{i}", found)
            self.desk.write(question, what, "", found, code)
        return {"codes": codes, **self._news()}, out

    def _asked(
        self, question: Inquiry, asked: Any, arrays: Arrays
    ) -> tuple[str, Arrays]:
        """One of the questions of such a blend."""
        learner = question.codec.learner
        assert isinstance(learner, Linear)
        family = SumsFamily(learner, question.terms.features)
        one = checked(asked, arrays, family, size=family.size, names=1)
        if one.kind == "take":
            if not self.home.policy.target:
                raise Refused("target")
            self._finish(question, one.model)
            return one.kind, {}
        if one.kind != "parts":  # refits have no noise
            raise Refused("privacy")
        matrix = self.desk.sums(question).inside(question.terms)
        whole = device_sums(matrix, family.level)
        nothing = DeviceSums(*(np.zeros_like(array) for array in whole))
        told = [nothing] * (MANY - 1) + [whole]  # nothing of it is ever hidden
        return one.kind, family.written(told)

    def _asked_of_trees(
        self, question: Inquiry, asked: Any, arrays: Arrays
    ) -> tuple[str, Arrays]:
        """Sums in leaves, and a forest in return."""
        family = LeavesFamily(question.terms)
        one = checked(asked, arrays, family, size=family.size, names=1)
        if one.kind != "take":
            return one.kind, leaves_told(self.desk, question, family)
        if not self.home.policy.target:
            raise Refused("target")
        others = one.model
        trees = family.trees
        told = trees.heard(others.reshape(trees.form))
        usual = trees.models(family.learner, told.means)
        self._keep_home(
            question,
            usual,
            lambda: forest_at_home(self.desk, question, family, others),
        )
        return one.kind, {}
