"""What a method would cost over a federation: questions, messages and bytes, counted as it runs.

A question is one answer from one device: where a step on its rows takes a model that it was sent,
its losses of models that it was sent, or a peer's answer to a probe. Own steps of a device on its
own model, of which nobody is told, are none. A method that takes no steps has every device send its
rows once, or where that is all it needs, sums over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from persfl.device_checks import refuse_rowless
from persfl.fleets.array_fleet import ArrayFleet
from persfl.learners.linear import Linear
from persfl.methods import Blend, KNNPer, LocalTask, Method, Mixed, Own
from persfl.methods.single_fit import FOLDS
from persfl.seeds import Stream
from persfl.types import Answers, Array, IntArray, Model, Proposer

NUMBER = 8  # bytes
PARTS = 6  # of rows, whose sums a blend is made from


class AskingCost(NamedTuple):
    """Of a device, on average; a question is a message there and one back."""

    questions: float
    messages: float
    kilobytes: float
    leaves: str
    """answers, sums, rows, or nothing; not counted where it is computed from all rows here, though
    a federation would ask for steps.
    """


@dataclass
class Tally:
    """Answers of all devices, and numbers that went either way."""

    answers: int = 0
    numbers: int = 0

    def add(self, answers: int, each: int) -> None:
        """So many more, with so many numbers for each."""
        self.answers += answers
        self.numbers += answers * each


class CountedFleet(ArrayFleet):
    """A fleet that counts what it is asked."""

    tally: Tally

    def stepped(self, models: Array, who: IntArray | None, place: Stream) -> Array:
        """Steps of devices that are named are told to whoever asks."""
        if who is not None:
            self.tally.add(len(who), 2 * models.shape[-1])
        return super().stepped(models, who, place)

    def scored(self, models: Array, who: IntArray | None = None) -> Array:
        """All models in one message."""
        asked = len(self.targets) if who is None else len(who)
        self.tally.add(asked, len(models) * (models.shape[-1] + 1))
        return super().scored(models, who)

    def probe(self, peers: IntArray, r: int) -> Answers:
        """A model to every peer, and what it makes of it back; targets score at home."""
        models = self.models
        size = models.shape[-1] if isinstance(models, np.ndarray) else 0
        self.tally.add(int((peers >= 0).sum()), 2 * size)
        return super().probe(peers, r)


@dataclass(frozen=True, eq=False)
class CountedTask(LocalTask):
    """A task whose fleets count."""

    tally: Tally = field(default_factory=Tally)

    def fleet(
        self, proposer: Proposer, start: Sequence[Model] | None = None
    ) -> CountedFleet:
        """A new fleet; a run that begins anew with a shorter step is counted from there."""
        self.tally.answers = 0
        self.tally.numbers = 0
        refuse_rowless(self.rows)
        made = CountedFleet(
            self.rows,
            learner=self.learner,
            proposer=proposer,
            start=start,
            seed=self.seed,
            n_jobs=self.n_jobs,
            compute=self.compute,
        )
        made.tally = self.tally
        return made

    def cost(self, method: Method) -> AskingCost:
        """Of what has run so far."""
        n = self.n
        tally = self.tally
        if tally.answers:
            # one that learns a common model for every fold, too, asks as often for each
            times = 1 + FOLDS if isinstance(method, KNNPer) else 1
            each = times * tally.answers / n
            size = times * NUMBER * tally.numbers / n / 1000
            return AskingCost(each, 2 * each, size, "answers")
        if isinstance(method, Own):
            return AskingCost(0.0, 0.0, 0.0, "nothing")
        learner = self.learner
        squared = isinstance(learner, Linear) and learner.kind == "squared"
        if squared and isinstance(method, Blend | Mixed):
            width = self.features + 1
            sums = PARTS * (width * (width + 3) // 2 + 2) + width
            return AskingCost(1.0, 2.0, NUMBER * sums / 1000, "sums")
        if not method.needs().together:
            return AskingCost(0.0, 0.0, 0.0, "not counted")
        rows = len(self.rows.y) * (self.features + 1) / n
        return AskingCost(1.0, 2.0, NUMBER * rows / 1000, "rows")
