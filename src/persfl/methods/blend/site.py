"""Where the devices are: what the algorithm asks, and who carries the question.

`LocalSite` has all rows in this process; `persfl.federation.blend_site` sends the same questions as
messages. As a peer, a device answers questions about models. As a target it has copies, one with
all its rows and one without each fold; it judges what it is offered by its folds, and that is the
*evidence*. Where rows are in one place, a mean over peers may be computed from their rows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from persfl.methods.blend.budget import Budget
from persfl.methods.blend.views import ViewSettings
from persfl.types import Array, Fleet, IntArray, Model, Proposer

if TYPE_CHECKING:
    from persfl.methods.blend.offers import Offers
    from persfl.methods.blend.question_base import Question

# what offers are made from: (size,) for all copies alike, (copies, size), or models that are none
Starts = Mapping[str, Any]
Result = TypeVar("Result")


class Spreads(NamedTuple):
    """Per device: the weight of its rows, and sums of squares of every feature about its own
    means.
    """

    weight: Array
    squares: Array

    def of(self, which: IntArray) -> Spreads:
        """Of these devices."""
        return Spreads(*(array[which] for array in self))


class Evidence(NamedTuple):
    """`losses` (targets, offers): means over each target's folds; `weight` (targets,) of the rows
    judged, 0 for no evidence. `offers` is what `Site.mixed` makes the models from.
    """

    losses: Array
    weight: Array
    offers: Any


@dataclass(frozen=True, eq=False)
class GroupPlan:
    """The targets `mine` of one group, in one view, and their peers: the devices of `rest`."""

    look: ViewSettings
    number: int  # of the group
    mine: IntArray
    rest: IntArray
    seed: int
    budget: float  # of each target
    fewest: int  # targets of the smallest group,
    known: int  # and the devices of all others
    run_seed: int = 0  # of the whole blend; `seed` belongs to this lot


class Group(Protocol):
    """A lot, and the way to its devices. `peers`, `targets`, `copies` are counts."""

    family: Offers
    plan: GroupPlan
    look: ViewSettings
    peers: int
    targets: int
    copies: int
    seed: int
    budget: Budget
    weight: Array  # (peers,) of their rows

    def ask(
        self, question: Question, who: IntArray, whose: IntArray | None = None
    ) -> Mapping[str, Any]:
        """Replies of these peers, one for each of `who`; NaN or None for no usable one, and
        where `who` is -1.

        `whose` (K,) says which copy asks; without it all targets ask together. It is paid for.
        """

    def own(self, question: Question) -> Mapping[str, Any]:
        """Replies of all targets, copy by copy."""

    def fleet(self, proposer: Proposer, start: Any) -> Fleet:
        """For the search: peers are devices 0 to `peers` - 1, the copies stand behind them."""

    # of vectors

    def begin(self) -> Array:
        """(copies, size) the model that each copy would begin with."""

    def pooled_descent(self, who: IntArray, steps: int, rate: float) -> Array:
        """(size,) so many steps along the mean gradient of these peers, by their rows."""

    # of models that are only refitted

    def pooled_fit(self, who: IntArray) -> Model | None:
        """One model for the rows of these peers, where they may be in one place."""

    def own_fits(self) -> Any:
        """(copies,) the models of own rows alone; None where they stay at home."""


class Bundle(Protocol):
    """Groups that are worked on together."""

    @property
    def groups(self) -> Sequence[Group]: ...

    def near_descent(
        self,
        which: Sequence[int],
        near: Sequence[IntArray],
        start: Array,
        steps: int,
        rate: float,
    ) -> Array:
        """(copies of all these groups, size) steps along the mean gradient of each copy's nearest
        peers, every one of which counts as much.
        """

    def evidence(self, starts: Sequence[Starts]) -> list[Evidence]:
        """How well offers made from these predict rows that they have not seen."""


class BlendSite(Protocol):
    """All devices. `targets` are those that want a model."""

    family: Offers
    n: int
    targets: IntArray
    copies: int
    classes: int
    seed: int

    def spreads(self) -> Spreads:
        """Of all devices."""

    def work(
        self, plans: Sequence[GroupPlan], piece: Callable[[Bundle], Sequence[Result]]
    ) -> list[Result]:
        """One result for every lot, of a piece of work that takes some of them together."""

    def mixed(
        self, plans: Sequence[GroupPlan], evidence: Sequence[Evidence], shares: Array
    ) -> Any:
        """Every target's model: its offers mixed by `shares` (devices, offers)."""
