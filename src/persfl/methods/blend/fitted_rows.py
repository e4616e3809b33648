"""What devices compute for a blend of trees and other models that are only refitted; many at once
in one process, one alone at home.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from persfl.devices import Devices
from persfl.learners.responses import respond
from persfl.methods.blend.evidence import missed
from persfl.methods.blend.folds import TargetRows
from persfl.methods.blend.question_base import Question
from persfl.methods.blend.questions import Fit, OwnRows, Refits, Weigh
from persfl.methods.blend.site import Starts
from persfl.proposers import Refit
from persfl.seeds import Stream, stream
from persfl.types import Array, Data, IntArray, Learner, Model

if TYPE_CHECKING:
    from persfl.methods.blend.offers.refits import RefitOffers

# How a model is grown from so many rows of a device: as the learner does, unless it may leave.
Grower = Callable[[Learner, int], Learner]
Place = Callable[
    [int], Stream
]  # where a fit draws, by the number of who asks, or of the copy


def as_it_is(learner: Learner, rows: int) -> Learner:
    """Every fit may leave: nothing leaves this process."""
    return learner


def nowhere(number: int) -> Stream:
    """The same place for everybody."""
    return stream(0, "fit")


class FittedPeers:
    """Devices that answer."""

    def __init__(
        self,
        family: RefitOffers,
        rows: Devices,
        place: Place = nowhere,
        grower: Grower = as_it_is,
    ) -> None:
        self.family = family
        self.rows = rows
        self.place = place
        self.grower = grower

    def answer(self, question: Question, who: IntArray) -> dict[str, Any]:
        """What each of these says; the question has an entry for every one."""
        found = np.full(len(who), None, dtype=object)
        for i, j in enumerate(who.tolist()):
            if j < 0:
                continue
            data = self.rows[j]
            learner = self.grower(self.family.learner, data.rows)
            if isinstance(question, Fit):
                found[i] = learner.fit(data, self.place(i))
                continue
            assert isinstance(question, Refits)
            proposer = self.family.proposer
            probe = question.probes[i]
            found[i] = proposer.answer(learner, probe, data, self.place(i))
        return {"answers": found}


class FittedTargets:
    """Devices that judge what they are offered."""

    def __init__(
        self,
        family: RefitOffers,
        own: TargetRows,
        place: Place = nowhere,
        grower: Grower = as_it_is,
    ) -> None:
        self.family = family
        self.own = own
        self.place = place
        self._rows = [weighty(data) for data in own.copies]
        self._grow = [grower(family.learner, data.rows) for data in self._rows]

    @cached_property
    def alone(self) -> list[Model]:
        """(copies,) the models of own rows."""
        return [
            learner.fit(data, self.place(c))
            for c, (learner, data) in enumerate(
                zip(self._grow, self._rows, strict=True)
            )
        ]

    def answer(self, question: Question) -> dict[str, Array]:
        """What every copy says."""
        if isinstance(question, OwnRows):
            return {"weight": self.own.copies.total}
        assert isinstance(question, Weigh)
        found = np.full((len(self._rows), question.many), np.inf)
        for c, s in np.ndindex(*found.shape):
            model = question.models[c, s]
            if model is None and not s:
                model = self.alone[c]
            if model is not None:
                found[c, s] = self.family.learner.loss(model, self.own.copies[c])
        return {"losses": np.where(np.isfinite(found), found, np.inf)}

    def offers(self, starts: Starts) -> list[list[Model]]:
        """Per copy, in the order of the names; None for what is not offered."""
        pooled = starts["pooled"]
        near = starts["neighbours"]
        return [
            self._offers(c, pooled, None if near is None else near[c])
            for c in range(len(self._rows))
        ]

    def _offers(self, c: int, pooled: Model | None, near: Any) -> list[Model]:
        family = self.family
        found = [self.alone[c]]
        for start in (pooled, near):
            found.append(start)
            for weight in family.settings.refits.own_weights:
                proposer = Refit(family.public, step_size=weight, soft=family.soft)
                found.append(None if start is None else self._refit(c, start, proposer))
        return found

    def _refit(self, c: int, start: Model, proposer: Refit) -> Model:
        """A start, or every model of a mix, refitted to own rows."""
        learner = self.family.learner
        grow = self._grow[c]
        data = self._rows[c]
        mix = [
            (
                share,
                proposer.answer(
                    grow, proposer.ask(learner, model), data, self.place(c)
                ),
            )
            for share, model in (start if isinstance(start, list) else [(1.0, start)])
        ]
        return mix if len(mix) > 1 else mix[0][1]

    def judged(self, offers: Sequence[list[Model]]) -> tuple[Array, Array]:
        """(targets, offers and even mixes of them) the mean loss over rows, each by the copy that
        has not seen its fold; (targets,) the weight judged.
        """
        own = self.own
        family = self.family
        rows = own.rows
        count = own.folding.count
        classes = own.folding.classes
        columns = len(family.names()) + family.extra
        lost = np.zeros((len(rows), columns))
        there = [k for k, model in enumerate(offers[0]) if model is not None]
        evenly = family.evenly(there)
        for i, fold in np.ndindex(len(rows), count):
            at = np.flatnonzero(own.fold[rows.start[i] : rows.start[i + 1]] == fold)
            at = at + rows.start[i]
            if not len(at):
                continue
            models = offers[i * (count + 1) + 1 + fold]
            said = {
                k: respond(family.learner, models[k], rows.X[at], classes)
                for k in there
            }
            for column, some in evenly.items():
                said[column] = np.mean([said[k] for k in some], axis=0)
            for column, response in said.items():
                each = own.usable[at] * missed(response, rows.y[at], classes)
                lost[i, column] += each.sum()
        weight = own.total(own.usable)
        return lost / np.maximum(weight, 1e-12)[:, None], weight

    def whole(self, offers: Sequence[list[Model]]) -> list[list[Model]]:
        """Per target what is made of all rows."""
        return list(offers[:: self.own.folding.count + 1])


def weighty(data: Data) -> Data:
    """Rows that weigh something."""
    return data.take(np.flatnonzero(data.weight > 0))
