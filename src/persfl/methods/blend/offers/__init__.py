"""How offers come about: a family of models each, chosen by what the learner can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from persfl.devices import Devices
from persfl.errors import InputError
from persfl.learners import Linear
from persfl.methods.blend import blend_settings as tuned
from persfl.methods.blend.blend_settings import BlendSettings
from persfl.methods.blend.folds import TargetRows
from persfl.methods.blend.forms import ModelFamily
from persfl.methods.blend.offers.descent import Descent
from persfl.methods.blend.offers.refits import RefitOffers
from persfl.methods.blend.offers.steps import StepOffers
from persfl.methods.blend.question_base import Question
from persfl.methods.blend.search import Search
from persfl.methods.blend.site import Bundle, Starts
from persfl.methods.blend.views import ViewSettings
from persfl.traits import has_gradients
from persfl.types import Array, IntArray, Learner

__all__ = ["Descent", "Offers", "RefitOffers", "StepOffers", "offers_for"]


class Peers(Protocol):
    """Devices that answer, from rows that are here."""

    def answer(self, question: Question, who: IntArray) -> Mapping[str, Any]:
        """Replies by name; an entry for each of `who`."""


class Targets(Protocol):
    """Devices that judge, from rows that are here."""

    def answer(self, question: Question) -> Mapping[str, Any]:
        """Replies by name; an entry for each copy."""

    def offers(self, starts: Starts) -> Any:
        """What every copy makes of the starts."""

    def judged(self, offers: Any) -> tuple[Array, Array]:
        """(targets, offers) losses over folds; (targets,) the weight judged."""

    def whole(self, offers: Any) -> Any:
        """Of these only what is made of all rows of a target."""


class Offers(ModelFamily, Protocol):
    """A family: what is asked of whom, what is made of it, how it is mixed."""

    @property
    def settings(self) -> BlendSettings: ...
    @property
    def size(self) -> int:
        """Of a model; 0 where models are no vectors."""

    @property
    def unit(self) -> int:
        """How many questions of this family cost as much as one refit."""

    @property
    def questions(self) -> tuple[type[Question], ...]:
        """What devices are asked, and nothing else."""

    @property
    def hides(self) -> bool:
        """Whether rows whose class no other row has make all evidence less sure."""

    @property
    def extra(self) -> int:
        """Columns of losses beyond the names."""

    def path(self, view: str, number: int) -> tuple[Any, ...]:
        """Where the random numbers of a group are drawn."""

    def names(self) -> list[str]:
        """What offers are called: the start, then how much of own rows."""

    def starts(self, bundle: Bundle) -> list[tuple[Starts, Search]]:
        """What offers are made from: asks peers, pays from each group's budget."""

    def peers(self, rows: Devices, look: ViewSettings, *how: Any) -> Peers:
        """Devices that answer."""

    def targets(self, own: TargetRows, look: ViewSettings, *how: Any) -> Targets:
        """Devices that judge."""

    def shares(
        self, losses: Array, rows: Array, paid: Sequence[int], sure: float
    ) -> Array:
        """(devices, offers) by the evidence; nothing of what is not paid."""

    def mixed(self, offers: Any, mix: Array) -> Any:
        """Models of some targets from what is offered to them in one view, by shares (targets,
        offers).
        """

    def models(self, n: int, parts: Sequence[tuple[IntArray, Any]]) -> Any:
        """Of `n` devices from those of some, view by view: vectors, or lists of (share, model)."""


def offers_for(
    learner: Learner,
    features: int,
    *,
    classes: int = 0,
    public: Array | None = None,
    settings: BlendSettings | None = None,
) -> Offers:
    """The family that suits a learner; squared loss has a rule of its own, from sums.

    >>> type(offers_for(Linear("huber"), 3)).__name__
    'StepOffers'
    """
    chosen = settings or tuned.USUAL
    if isinstance(learner, Linear):
        if learner.kind == "squared":
            raise InputError(
                "linear models under squared loss are blended from sums over rows. Use"
                " persfl.methods.blend.blend, or the method."
            )
        return StepOffers(learner, features, classes, chosen)
    if has_gradients(learner):
        return Descent(learner, features, classes, chosen)
    if public is None:
        raise InputError(
            "blend of models that are refitted needs public points. Got none."
        )
    return RefitOffers(learner, features, public, classes, chosen)
