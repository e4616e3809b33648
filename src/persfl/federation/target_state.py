"""What is known at the coordinator of each target: its probe, its model, what it still has to
be told to adopt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from persfl.errors import InputError
from persfl.federation.questions import adopted
from persfl.wire import (
    Terms,
    model_from,
    model_to,
    nested,
    probe_from,
    probe_to,
    sends_model,
    within,
)


class Adoption(NamedTuple):
    """What a target was told to adopt after a round; `anew` replaces its model whatever it was."""

    round: int
    stay: float
    weights: tuple[float, ...]
    pieces: tuple[Any, ...]
    anew: bool = False


class Standing:
    """`count` targets under these terms.

    `probes` are None where a target must be asked for its own, `models` where it still has the one
    it made at home.
    """

    def __init__(self, terms: Terms, count: int) -> None:
        self.terms, self.learner, self.proposer = (
            terms,
            terms.learner(),
            terms.proposer(),
        )
        self.probes: list[Any] = [None] * count
        self.models: list[Any] = [None] * count
        self.pending: list[list[Adoption]] = [[] for _ in range(count)]
        self.own = np.full(count, np.inf)
        # A local step or running statistics are known to the target alone.
        self.eager = terms.local is not None or getattr(self.learner, "renews", False)

    def adopt(self, t: int, told: Adoption) -> None:
        """Note what a target is to adopt, and what its probe will then be."""
        self.pending[t].append(told)
        if self.models[t] is not None or told.stay == 0:
            self.models[t] = adopted(
                self.learner, self.models[t], told.pieces, told.weights, told.stay
            )
        if not self.eager and len(self.pending[t]) > 1 and self.models[t] is not None:
            # It missed a round: the model it comes to says all, and a message does not grow with
            # every round it is away.
            self.pending[t] = [
                Adoption(told.round, 0.0, (1.0,), (self.models[t],), anew=True)
            ]
        if self.eager:
            self.probes[t] = None
        elif told.pieces:
            self.probes[t] = self.proposer.ask(self.learner, self.models[t])

    def tell(self, t: int, arrays: Mapping[str, Any]) -> None:
        """A target's own probe, as it sent it."""
        self.probes[t] = self._probe(arrays)
        if sends_model(self.proposer, self.learner):
            self.models[t] = self.probes[t]

    def hand_in(self, start: Sequence[Any]) -> None:
        """Models to start from."""
        if len(start) != len(self.probes):
            raise InputError(
                f"start must hold one model per target ({len(self.probes)}). Got {len(start)}."
            )
        for t, given in enumerate(start):
            self.models[t] = self._model(model_to(self.learner, given))
            self.pending[t] = [Adoption(-1, 0.0, (1.0,), (self.models[t],), anew=True)]
            self.probes[t] = self.proposer.ask(self.learner, self.models[t])

    def before(self, r: int) -> None:
        """Models that were handed in are those before the first round that is run."""
        for waiting in self.pending:
            if waiting and waiting[0].anew and waiting[0].round < 0:
                waiting[0] = waiting[0]._replace(round=r - 1)

    def recover(self, t: int, r: int) -> None:
        """A target that has lost its model gets back the one that was seen here last, if any."""
        if self.models[t] is not None:
            self.pending[t] = [
                Adoption(r - 1, 0.0, (1.0,), (self.models[t],), anew=True)
            ]

    def to_wire(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """A head per target, and arrays."""
        heads, arrays = [], {"own": self.own}
        for t in range(len(self.probes)):
            if self.probes[t] is not None:
                arrays |= nested(
                    f"t{t}.probe", probe_to(self.proposer, self.learner, self.probes[t])
                )
            if self.models[t] is not None:
                arrays |= nested(f"t{t}.model", model_to(self.learner, self.models[t]))
            for i, one in enumerate(self.pending[t]):
                for k, piece in enumerate(one.pieces):
                    arrays |= nested(f"t{t}.a{i}.{k}", model_to(self.learner, piece))
            heads.append(
                {
                    "probe": self.probes[t] is not None,
                    "model": self.models[t] is not None,
                    "pending": [
                        [a.round, a.stay, list(a.weights), a.anew]
                        for a in self.pending[t]
                    ],
                }
            )
        return heads, arrays

    def restore(
        self, heads: Sequence[Mapping[str, Any]], arrays: Mapping[str, Any]
    ) -> None:
        """The inverse of `to_wire`."""
        self.own = np.array(arrays["own"])
        for t, told in enumerate(heads):
            inner = within(f"t{t}", arrays)
            if told["probe"]:
                self.probes[t] = self._probe(within("probe", inner))
            if told["model"]:
                self.models[t] = self._model(within("model", inner))
            for i, (r, stay, weights, anew) in enumerate(told["pending"]):
                pieces = tuple(
                    self._model(within(f"a{i}.{k}", inner)) for k in range(len(weights))
                )
                self.pending[t].append(Adoption(r, stay, tuple(weights), pieces, anew))

    def _model(self, arrays: Mapping[str, Any]) -> Any:
        return model_from(self.learner, arrays, self.terms.features, self.terms.classes)

    def _probe(self, arrays: Mapping[str, Any]) -> Any:
        return probe_from(
            self.proposer, self.learner, arrays, self.terms.features, self.terms.classes
        )
