"""What computes for a fleet in this process.

An engine holds the targets' models and computes pairs of them. Which devices there are, which rows
they have now and which rows a target scores by, it reads from the fleet's rows; of rounds it knows
their number only, of trust and remembered steps nothing. There are four:

    Pairwise   one pair after the other: any learner, the reference for the others
    Batched    all pairs of a round at once, on NumPy arrays: models that are vectors
    Compiled   the same in compiled code: gradient steps of Linear
    Torch      the same on tensors, on a processor or a GPU: gradient steps of Linear and Network

`check_fleet` in `persfl.testing` is their contract.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from persfl.errors import InputError
from persfl.traits import zeros_of

if TYPE_CHECKING:
    from persfl.devices import Devices
    from persfl.fleets.rows import FleetRows
    from persfl.seeds import Stream
    from persfl.types import (
        Answers,
        Array,
        Choice,
        Data,
        IntArray,
        Learner,
        Model,
        Models,
        Proposer,
    )


@dataclass(frozen=True)
class Slice:
    """Some devices' rows: `which[i]` is the position in `rows` of the i-th of them, -1 for
    nobody.
    """

    rows: Devices
    which: IntArray

    def __getitem__(self, i: int | tuple[int, int]) -> Data:
        return self.rows[int(self.which[i])]

    def batch(self, i: slice | tuple[slice, None]) -> Data:
        """Padded rows, leading axes as `which[i]`."""
        return self.rows.gather(self.which[i])


@dataclass(frozen=True)
class EngineTask:
    """What an engine computes with: a fleet's rows and parts."""

    rows: FleetRows
    learners: list[Learner]
    learner: Learner | Sequence[Learner]
    proposer: Proposer
    local: Proposer | None
    seed: int


class Engine(Protocol):
    """Computes pairs, and holds the targets' models."""

    @property
    def models(self) -> Models:
        """One model per target."""

    @models.setter
    def models(self, models: Models) -> None: ...

    def started(self, start: str | None) -> Models:
        """The targets' first models by this rule, from the rows they train on."""

    def answers(self, peers: IntArray, asked: Slice, r: int) -> Answers:
        """Losses and lengths of what these peers answer from these rows; inf and NaN for nobody."""

    def advice(self) -> str:
        """Why the last answers may have failed, or what to change."""

    def proposals(self, peers: IntArray, asked: Slice, r: int) -> Array:
        """(T, S, size) what the peers just asked answer; NaN for nobody."""

    def own_answers(self, r: int) -> Array:
        """(T, size) where the proposer's step on their own rows would take the targets."""

    def own_lengths(self, r: int) -> Array:
        """(T,) how far that is; NaN where a length has no meaning."""

    def adopt(self, choice: Choice, r: int) -> None:
        """Mix what was chosen, then `hold` it."""

    def hold(self, models: Array, r: int) -> None:
        """These models from now on: statistics renewed, and a local step further."""

    def step(self, models: Array, rows: Slice, place: Stream) -> Array:
        """(D, size) where the proposer's step on these devices' rows takes these models."""

    def score(self, models: Array, rows: Slice) -> Array:
        """(D, K) the losses of K models on these devices' rows; inf where one overflows."""


def starting_model(
    learner: Learner, data: Data, stream: Stream, start: object
) -> Model:
    """One model (or a batch of them, where the data has leading axes).

    `start` is None (the learner's own `init`), "zeros" or "own".
    """
    if start is None:
        return learner.init(data, stream)
    if start == "own":
        return learner.fit(data, stream)
    if start == "zeros":
        return zeros_of(learner, data, stream)
    raise InputError(
        "start must be None, 'zeros', 'own', a model, or a list of one model per target. Got"
        f" {start!r}."
    )
