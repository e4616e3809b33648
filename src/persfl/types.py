"""The few types that everything shares: Data, Choice, Round, and what a part must be able to do.

A model is whatever its learner says it is. `Data` has free leading axes: `X` is `(..., rows,
features)`, `y` and `weight` are `(..., rows)`; one device has none, a batch of (target, peer) pairs
has two. Padding rows have weight 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from persfl.seeds import Stream
    from persfl.trust import Trust

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Mask = NDArray[np.bool_]
AnyArray = NDArray[Any]  # of numbers, truth values or texts
Model = Any  # whatever its learner says it is
Models = Sequence[Model] | Array
Probe = Any
Proposal = Any


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """The rows of a device, or of a batch of devices.

    >>> data = Data(np.ones((3, 2)), np.zeros(3))
    >>> data.weight.tolist(), data.rows
    ([1.0, 1.0, 1.0], 3)
    """

    X: Array
    y: Array
    weight: Array

    def __init__(
        self, X: ArrayLike, y: ArrayLike, weight: ArrayLike | None = None
    ) -> None:
        if not isinstance(X, np.ndarray) or not isinstance(y, np.ndarray):
            X = np.asarray(X, dtype=np.float64)
            y = np.asarray(y, dtype=np.float64)
        object.__setattr__(self, "X", X)
        object.__setattr__(self, "y", y)
        object.__setattr__(
            self,
            "weight",
            np.ones(y.shape)
            if weight is None
            else np.asarray(weight, dtype=np.float64),
        )

    @property
    def rows(self) -> int:
        return int(self.X.shape[-2])

    def take(self, rows: IntArray) -> Data:
        """The rows with these numbers; `rows` has the same leading axes.

        >>> Data(np.eye(3), np.arange(3.0)).take(np.array([2, 0])).y.tolist()
        [2.0, 0.0]
        """
        return Data(
            np.take_along_axis(self.X, rows[..., None], axis=-2),
            np.take_along_axis(self.y, rows, axis=-1),
            np.take_along_axis(self.weight, rows, axis=-1),
        )


class Answers(NamedTuple):
    """What probing brought: `losses` (T, S+1), column 0 for keeping the model, inf for no
    usable answer; `lengths` (T, S).
    """

    losses: Array
    lengths: Array


class Kept(NamedTuple):
    """What keeping steps brought.

    `shrink` (T, S): how much shorter each asked peer's step is than its first was (log of squares;
    NaN is no honest answer); `length` (T, S): how long it is (log of squares, in the model's units;
    NaN where there is none). `own` and `own_length` (T,): the same of the target's own step.
    `moved` (T,): the length of its last move over that of independent steps; near 0, the steps it
    follows cancel each other. `size`: how many numbers a step has.
    """

    shrink: Array
    length: Array
    own: Array
    own_length: Array
    moved: Array
    size: int


class Choice(NamedTuple):
    """What targets adopt: `peers` (T, K), -1 for none; their `weights` (T, K); `stay` (T,). Each
    row of weights plus stay is 1.

    An adopter that `keeps` steps may also name peers asked earlier, whose last step it takes, and
    the target itself: its own step. Its weights may exceed 1 (stay is then below 0: further than
    the answers), and `anew` (T,) sends targets back to their start.
    """

    peers: IntArray
    weights: Array
    stay: Array
    anew: Mask | None = None


class Round(NamedTuple):
    """One record of what happened in round `r`; `trust` is what is known after it."""

    r: int
    peers: IntArray
    losses: Array
    lengths: Array
    choice: Choice
    trust: Trust

    @property
    def loss(self) -> Array:
        """(T,) every target's own loss at the start of the round."""
        return self.losses[:, 0]


class Learner(Protocol):
    """A model family: the only code that knows what a model is."""

    def init(self, data: Data, stream: Stream) -> Model:
        """The model to start from when nothing else is said."""

    def fit(self, data: Data, stream: Stream) -> Model:
        """The model that fits these rows best."""

    def predict(self, model: Model, X: Array) -> Array:
        """The response at these points: a value, a probability, a rate."""

    def labels(self, model: Model, X: Array) -> Array:
        """The response as a label that could stand in `Data.y`."""

    def loss(self, model: Model, data: Data) -> Any:
        """The mean loss over the rows."""

    def mix(self, models: Any, weights: Array) -> Model:
        """The weighted mean of models; `models` lie along the last-but-one axis (or are a list)."""

    def check(self, model: object, features: int) -> Model:
        """A model that came from elsewhere, made usable, or an InputError."""


class Differentiable(Learner, Protocol):
    """Models are vectors; every method takes leading axes."""

    def size(self, features: int) -> int:
        """How many numbers a model has."""

    def grad(self, model: Array, data: Data) -> Array:
        """(..., size) the gradient of `loss`."""


@runtime_checkable
class LabelCheck(Protocol):
    """A learner that can say which labels its loss cannot take."""

    def check_labels(self, data: Data) -> str | None:
        """What these labels lack; None where they fit."""


@runtime_checkable
class Restarting(Protocol):
    """A learner whose starts can differ, for what must start apart."""

    def fresh(self, data: Data, stream: Stream) -> Model:
        """Another start, drawn at this place."""


class Proposer(Protocol):
    """Turns what leaves a target into what leaves a peer."""

    def ask(self, learner: Learner, model: Model) -> Probe:
        """Runs on the target: what is sent."""

    def answer(
        self, learner: Learner, probe: Probe, data: Data, stream: Stream | None
    ) -> Proposal:
        """Runs on the peer: what comes back; randomness is drawn at `stream`, if any is."""

    def length(self, learner: Learner, probe: Probe, proposal: Proposal) -> Any:
        """Runs on the target: how far the proposal lies from the model; NaN where that has no
        meaning.
        """

    def advice(self) -> str:
        """What to change when every answer overflows."""


@runtime_checkable
class PublicProposer(Proposer, Protocol):
    """A proposer whose answers rest on public points beside the peer's rows."""

    @property
    def extra_rows(self) -> int:
        """How many rows an answer is fitted to beside the peer's own."""

    def check_features(self, features: int) -> None:
        """Stop where the points do not have the devices' columns."""


Sampler = Callable[["Trust", int, int], IntArray]
Adopter = Callable[["Trust", IntArray, Array], Choice]
Source = Callable[[int], Sequence[Data]]


@runtime_checkable
class Noting(Protocol):
    """An adopter that remembers more than Trust's sums."""

    def __call__(self, trust: Trust, peers: IntArray, losses: Array) -> Choice: ...
    def note(
        self,
        trust: Trust,
        r: int,
        peers: IntArray,
        losses: Array,
        kept: Kept | None,
    ) -> dict[str, AnyArray]:
        """Its notes, before it chooses; `kept` says how steps have changed, if it keeps them."""


@runtime_checkable
class Keeping(Noting, Protocol):
    """A noting adopter that, where `keeps` is True, chooses among steps that the fleet keeps."""

    @property
    def keeps(self) -> bool: ...


class Fleet(Protocol):
    """Devices and the targets' models, wherever they live."""

    @property
    def n(self) -> int: ...
    @property
    def targets(self) -> IntArray: ...
    @property
    def models(self) -> Any: ...
    def observe(self, r: int) -> None: ...
    def probe(self, peers: IntArray, r: int) -> Answers: ...
    def adopt(self, choice: Choice) -> None: ...


# of a round's number, and whether another one follows, to whom was asked, what came of it and what
# was adopted; None where that cannot be done in one piece after all
WholeRound = Callable[[int, bool], tuple[IntArray, Answers, Choice] | None]


@runtime_checkable
class StayingFleet(Protocol):
    """A fleet that may take whole rounds in one piece, where its computation is."""

    def staying(
        self, sampler: Sampler, adopter: Adopter, seed: int
    ) -> WholeRound | None:
        """Rounds of these parts; None where they are taken step by step."""


class KeepingFleet(Fleet, Protocol):
    """A fleet that can remember each peer's last step, for adopters that say `keeps = True`."""

    kept: Any
    """The kept steps as plain arrays; with trust and models they are a checkpoint.

    None before the first round.
    """

    def keep(self, peers: IntArray, r: int) -> Kept:
        """Remember the steps of the peers just probed, and the targets' own; `adopt` then takes
        kept steps.
        """
