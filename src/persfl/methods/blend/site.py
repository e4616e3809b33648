"""What blend asks of devices: everything that needs their rows, and nothing else.

As a peer, a device answers a model with a model (steps, refits), and with one number: how noisy its
rows are. As a target it has copies, one with all its rows and one without each fold. It tells the
losses of models on each copy's rows, what each copy would answer itself, and how well its offers
predict each fold: the *evidence*. Sums of squares about its own means give the usual spread.
`Here` has all devices in memory; `persfl.federation.blend_site` asks the same over a federation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from persfl.learners.linear import Linear
from persfl.types import Array, IntArray, Proposer

# what offers are made from: (size,) for all copies alike, or (copies, size)
Starts = Mapping[str, Array]


class Spreads(NamedTuple):
    """Per device: the weight of its rows, and sums of squares about its own means, of every
    feature and of the label.
    """

    weight: Array
    squares: Array
    label: Array


class Evidence(NamedTuple):
    """`losses` (targets, offers): means over each target's folds; `weight` (targets,) of the rows
    judged, 0 for no evidence.

    `kept` is what `Homes.mixed` needs to make the models.
    """

    losses: Array
    weight: Array
    kept: Any


class Part(Protocol):
    """A group of targets in one view, and the devices of other groups, their peers. `peers`,
    `targets`, `copies` are counts.
    """

    learner: Linear
    features: int
    peers: int
    targets: int
    copies: int
    seed: int
    budget: float
    weight: Array  # (peers,) of their rows

    def answers(
        self,
        proposer: Proposer,
        who: IntArray,
        models: Array,
        whose: IntArray | None = None,
    ) -> Array:
        """(K, size) what each of these peers answers to its model; NaN for no usable answer, and
        where `who` is -1.

        `whose` (K,) says which copy asks; without it all targets ask together.
        """

    def rough(self, who: IntArray, mean: Array, strength: Array) -> Array:
        """(K,) how noisy these peers' rows are about their own refits, drawn toward `mean`; NaN
        where unknown.
        """

    def own_rows(self) -> Array:
        """(targets * copies,) the weight of each copy's rows."""

    def own_answers(self, proposer: Proposer, models: Array) -> Array:
        """(M, targets * copies, size) what each copy answers to these M models."""

    def own_rough(self, mean: Array, strength: Array) -> Array:
        """(targets * copies,) as `rough`."""

    def losses(self, models: Array) -> Array:
        """(targets * copies, S) of models (targets * copies, S, size)."""

    def evidence(self, starts: Starts) -> Evidence:
        """How well offers made from this predict rows that they have not seen."""


class Homes(Protocol):
    """All devices. `targets` are those that want a model."""

    n: int
    targets: IntArray
    learner: Linear
    features: int
    classes: int
    copies: int

    def spreads(self) -> Spreads:
        """Of all devices."""

    def part(
        self, look: Any, mine: IntArray, rest: IntArray, seed: int, budget: float
    ) -> Part:
        """These targets and their peers in one view."""

    def side_by_side(self, work: Sequence[Callable[[Any], Any]]) -> list[Any]:
        """Results of independent pieces of work, in their order; each is handed the homes to
        ask.
        """

    def mixed(self, parts: Sequence[tuple[Any, IntArray, Any]], shares: Array) -> Any:
        """Every target's model: its offers mixed by `shares` (devices, offers); `parts` are
        (look, mine, kept).
        """
