"""What a method is: a frozen value whose fields are its settings, that makes a model per device.

A method is given a `Task` and asks it for a fleet, or for the rows where those are in one place.
What it needs to be able to run somewhere, and what leaves a device when it does, it says as plain
data: `Needs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

if TYPE_CHECKING:
    from persfl.devices import Devices
    from persfl.evaluation.row_order import RowOrder
    from persfl.training.state import Keep, State
    from persfl.types import Array, Fleet, Learner, Model, Proposer


@dataclass(frozen=True)
class Needs:
    """What a method needs, as plain data; `persfl methods` shows it."""

    gradients: bool = False
    """A learner with gradients, whose models are vectors."""
    mixes: bool = False
    """A learner whose models can be averaged."""
    numbers: bool = False
    """Labels that are numbers: no classes."""
    together: bool = False
    """All rows in one place: no federation can run it."""
    one_process: bool = False
    """Rows themselves, in the process that runs it: it does not run over shards."""
    questions: bool = False
    """Questions of its own beside a fleet's, which a federation has to know."""
    not_federated: str = ""
    """Why no federation runs it, where that is not because rows must be together."""
    units: tuple[str, ...] = ("shared", "centred", "raw")
    """The units that its rows may come in; one that looks at several itself names the first."""
    package: str = ""
    """A package that must be installed, by the name under which it is installed."""
    told: str = ""
    """What it has to be told, such as "the number of clusters"."""
    leaves: str = ""
    """What leaves a device, in one sentence."""


class Task(Protocol):
    """What a method is given. `LocalTask` is the one whose rows are in this process."""

    @property
    def n(self) -> int:
        """How many devices there are."""

    @property
    def features(self) -> int:
        """How many columns rows have."""

    @property
    def learner(self) -> Learner: ...
    @property
    def classes(self) -> int:
        """How many classes labels have; 0 where they are numbers."""

    @property
    def seed(self) -> int: ...
    @property
    def public(self) -> Array | None:
        """Public points, where models are refitted."""

    @property
    def n_jobs(self) -> int | None: ...
    @property
    def compute(self) -> str | None:
        """Where steps are computed, as torch names it."""

    @property
    def ordered(self) -> bool:
        """Whether rows come in the order of time."""

    @property
    def order(self) -> RowOrder:
        """What repeats in the rows: their order in time, and keys that they share."""

    @property
    def together(self) -> bool:
        """Whether everybody's rows are in one place."""

    @property
    def once(self) -> bool:
        """Whether a run must not begin anew with a shorter step: devices pay for each answer, and
        their losses, if told at all, have noise.
        """

    @property
    def rows(self) -> Devices:
        """Everybody's rows; refused in one sentence where they are not in one place."""

    def fleet(self, proposer: Proposer, start: Sequence[Model] | None = None) -> Fleet:
        """A new fleet of all devices, beginning with these models."""


@runtime_checkable
class Method(Protocol):
    """A complete way to personalize, as a frozen dataclass; see `persfl.methods.method_fields`."""

    name: ClassVar[str]
    """The word by which estimators, commands and comparisons know it."""
    about: ClassVar[str]
    """What it does, in one line."""

    def needs(self) -> Needs:
        """What it needs to run, and what leaves a device when it does."""

    def run(
        self, task: Task, *, stage: str = "final", keep: Keep | None = None
    ) -> State:
        """A model per device; going on from what `keep` has of this stage."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Its settings by name."""

    def set_params(self, **settings: Any) -> Method:
        """The same method with other settings."""


@runtime_checkable
class Online(Method, Protocol):
    """A method for rows that keep arriving."""

    def go_on(self, task: Task, state: State) -> State:
        """Models for the rows as they are now, from those in `state`."""
