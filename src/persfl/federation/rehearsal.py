"""How often a method would ask each device for something that is paid for, found out beforehand.

The method runs here on devices that are none: they say that nothing moves them, and count. Who is
asked when hangs on the seed, so that for methods that draw their participants the count is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np

from persfl.devices import Devices
from persfl.errors import InputError
from persfl.evaluation.row_order import RowOrder
from persfl.methods.shared_method import SteppedMethod
from persfl.proposers import GradientStep
from persfl.seeds import Stream, stream
from persfl.types import (
    Answers,
    Array,
    Choice,
    Differentiable,
    IntArray,
    Model,
    Proposer,
)

TINY = 1e-6  # by which a step moves: methods compare directions, and nothing has none


def questions_asked(
    method: SteppedMethod, learner: Differentiable, n: int, features: int, seed: int
) -> IntArray:
    """(n,) how often each device is asked, where losses that nothing hangs on are not asked for.

    >>> from persfl import Linear
    >>> from persfl.methods import FedAvg
    >>> method = FedAvg(rounds=6, share=1.0)
    >>> questions_asked(method, Linear(), 3, 2, seed=0).tolist()
    [6, 6, 6]
    """
    task = RehearsedTask(learner, n, features, seed)
    with np.errstate(all="ignore"):
        method.run(task)
    return task.fleets[-1].asked


@dataclass(eq=False)
class RehearsedTask:
    """The task of a run that is only counted."""

    learner: Differentiable
    n: int
    features: int
    seed: int
    fleets: list[RehearsedFleet] = field(default_factory=list)

    classes: int = 0
    public: Array | None = None
    n_jobs: int | None = 1
    compute: str | None = None
    ordered: bool = False
    order: RowOrder = field(default_factory=RowOrder)
    together: bool = False
    once: bool = True

    @property
    def rows(self) -> Devices:
        """Nobody's."""
        raise InputError("a rehearsal has no rows.")

    def fleet(
        self, proposer: Proposer, start: Sequence[Model] | None = None
    ) -> RehearsedFleet:
        """So many devices that count."""
        assert isinstance(proposer, GradientStep)
        self.fleets.append(RehearsedFleet(self, proposer))
        return self.fleets[-1]


class RehearsedFleet:
    """Devices that count what they are asked."""

    def __init__(self, task: RehearsedTask, proposer: GradientStep) -> None:
        self.n = task.n
        self.ids = [str(i) for i in range(task.n)]
        self.targets = np.arange(task.n)
        self.learner = task.learner
        self.proposer = proposer
        size = task.learner.size(task.features)
        self.models = np.zeros((task.n, size))
        rows = Devices(
            np.zeros((task.n, task.features)),
            np.zeros(task.n),
            np.ones(task.n),
            np.arange(task.n + 1),
            self.ids,
        )
        self.home = SimpleNamespace(source=None, static=rows)
        self.asked = np.zeros(task.n, dtype=np.int64)
        self._measured = False
        self._place = stream(task.seed, "rehearsal")

    def observe(self, r: int) -> None:
        """Nothing arrives."""

    def probe(self, peers: IntArray, r: int) -> Answers:
        """Own losses, which are not asked for."""
        nothing = np.full((self.n, peers.shape[1]), np.nan)
        return Answers(np.ones((self.n, 1 + peers.shape[1])), nothing)

    def adopt(self, choice: Choice) -> None:
        """Nothing."""

    def stepped(self, models: Array, who: IntArray | None, place: Stream) -> Array:
        """A hair away; the first time everybody says how long steps from there are."""
        asked = self.targets if who is None else who
        new = np.ones(len(asked), dtype=bool)
        if who is not None and not self._measured:
            self._measured = True
            self.asked += 1
            new[:] = (models != models[0]).any()  # the same again costs nothing
        np.add.at(self.asked, asked[new], 1)
        return np.asarray(models + TINY * (self._place.uniform(*models.shape) - 0.5))

    def scored(self, models: Array, who: IntArray | None = None) -> Array:
        """Losses that are all much the same."""
        asked = self.targets if who is None else who
        np.add.at(self.asked, asked, 1)
        place = self._place.at("losses")
        return np.asarray(1.0 + TINY * place.uniform(len(asked), len(models)))
