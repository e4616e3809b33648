"""What a learner can do, as a value that is read instead of names that are guessed.

A learner states its `traits`. One that does not, because somebody else wrote it for the seven
methods of `persfl.types.Learner`, is looked at once: `traits_of` reads them off its methods.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal, Protocol, TypeGuard

import numpy as np

from persfl.types import (
    Adopter,
    Array,
    Data,
    Differentiable,
    Fleet,
    Keeping,
    KeepingFleet,
    Learner,
    Mask,
    Model,
)

if TYPE_CHECKING:
    import torch

    from persfl.seeds import Stream

    Parts = dict[str, torch.Tensor]  # a model by the names of its parts

Task = Literal["numbers", "classes", "counts"]

LEARNER = ("init", "fit", "predict", "labels", "loss", "mix", "check")
PROPOSER = ("ask", "answer", "length", "advice")
_CLASSES = ("logistic", "multinomial", "cross_entropy", "log", "error")
_TENSORS = ("parts", "joined", "part_loss", "part_slopes")


@dataclass(frozen=True)
class Traits:
    """What a learner can do beyond the seven methods that every learner has.

    >>> from persfl import Linear, Tree
    >>> Linear("logistic").traits
    Traits(gradients=True, mixes=True, chances=True, renews=False, tensors=False, task='classes',
    loss='logistic')
    >>> Tree().traits.gradients
    False
    """

    gradients: bool
    """`grad(model, data)` and `size(features)`: models are vectors (`Differentiable`)."""
    mixes: bool
    """`mix` has a mean to give; where it has none it raises CannotMix."""
    chances: bool
    """`chances(model, X)`: of every label (`Predictive`)."""
    renews: bool
    """`settled(models, data)`: running statistics that belong to the target (`Renewing`)."""
    tensors: bool
    """`parts`, `joined`, `part_loss`, `part_slopes`: on torch tensors (`TensorLearner`)."""
    task: Task
    """What labels are."""
    loss: str
    """The name of the loss; "" where a learner does not say."""

    @staticmethod
    @cache
    def of(
        loss: str, *, gradients: bool, renews: bool = False, tensors: bool = False
    ) -> Traits:
        """What is usual: vectors have a mean, and classes have chances. Made once for each."""
        task = task_of(loss)
        chances = task == "classes"
        return Traits(gradients, gradients, chances, renews, tensors, task, loss)


def task_of(loss: str) -> Task:
    """What labels a loss of this name takes.

    >>> task_of("huber"), task_of("log"), task_of("poisson")
    ('numbers', 'classes', 'counts')
    """
    if loss == "poisson":
        return "counts"
    return "classes" if loss in _CLASSES else "numbers"


def traits_of(learner: Learner) -> Traits:
    """The traits that a learner states, or else those that its methods tell.

    >>> from persfl import Linear
    >>> traits_of(Linear()).loss
    'squared'
    """
    stated = getattr(learner, "traits", None)
    return stated if isinstance(stated, Traits) else _looked_up(learner)


def _looked_up(learner: Learner) -> Traits:
    """The traits of a learner that states none."""
    gradients = _has(learner, "grad")
    chances = _has(learner, "chances")
    loss = str(getattr(learner, "kind", ""))
    says = getattr(learner, "classifies", None)
    classes = chances and not loss if says is None else bool(says)
    return Traits(
        gradients=gradients,
        mixes=gradients,
        chances=chances and says is not False,
        renews=bool(getattr(learner, "renews", False)),
        tensors=_has(learner, *_TENSORS),
        task="classes" if classes else task_of(loss),
        loss=loss,
    )


def _has(part: object, *names: str) -> bool:
    return all(hasattr(part, name) for name in names)


def is_learner(part: object) -> TypeGuard[Learner]:
    """Whether something has a learner's seven methods; a class is none, only what it makes."""
    return not isinstance(part, type) and _has(part, *LEARNER)


def is_proposer(part: object) -> bool:
    """Whether something has a proposer's four methods."""
    return not isinstance(part, type) and _has(part, *PROPOSER)


# The typed faces behind the flags: where one of the questions below says yes, mypy knows the
# methods too.


class Predictive(Learner, Protocol):
    """Labels are classes, and a model knows how likely each is."""

    def chances(self, model: Model, X: Array) -> tuple[Array, Array]:
        """The chance of every label, and the labels."""


class Renewing(Learner, Protocol):
    """Models hold running statistics, which a target renews from its own rows."""

    def settled(
        self, models: Array, data: Data, momentum: float | None = None
    ) -> Array:
        """(..., size) the same weights with statistics renewed from these rows."""


class TensorMath(Protocol):
    """Models on torch tensors, for one device; `vmap` adds axes."""

    @property
    def width(self) -> int:
        """About how many numbers a row takes on its way through the model and back."""

    def parts(self, w: torch.Tensor) -> tuple[Parts, Parts]:
        """A model's vector by name: what steps change, and what they do not."""

    def joined(self, parts: Parts) -> torch.Tensor:
        """The vector again."""

    def said(self, parts: Parts, X: torch.Tensor) -> torch.Tensor:
        """(rows, outputs) what the model says."""

    def part_loss(
        self, parts: Parts, X: torch.Tensor, y: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        """The weighted mean loss."""

    def part_slopes(
        self,
        parts: Parts,
        fixed: Parts,
        X: torch.Tensor,
        y: torch.Tensor,
        weight: torch.Tensor,
    ) -> Parts:
        """Its gradient, by name."""


class TensorLearner(Differentiable, TensorMath, Protocol):
    """A learner that also computes on tensors."""

    dtype: str
    """"float32" or "float64"."""
    refit_steps: int
    """How many proximal steps an answer to `Refit` takes; 0 is a fit anew."""

    def slopes(
        self, w: torch.Tensor, X: torch.Tensor, y: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        """(size,) the gradient; 0 for what steps do not change."""


def has_gradients(learner: Learner) -> TypeGuard[Differentiable]:
    """Whether models are vectors with gradients."""
    return traits_of(learner).gradients


def has_chances(learner: Learner) -> TypeGuard[Predictive]:
    """Whether there are chances of labels."""
    return traits_of(learner).chances


def tells_chances(model: object) -> bool:
    """Whether a model of a learner with chances has some itself: scikit-learn's may lack them."""
    return isinstance(model, np.ndarray) or _has(model, "predict_proba")


def has_statistics(learner: Learner) -> TypeGuard[Renewing]:
    """Whether models hold running statistics, which a target renews from its own rows."""
    return traits_of(learner).renews


def has_tensors(learner: Learner) -> TypeGuard[TensorLearner]:
    """Whether steps and losses can be computed on torch tensors."""
    return traits_of(learner).tensors


def zeros_of(learner: Learner, data: Data, stream: Stream) -> Model:
    """The model that says nothing yet: `zeros(data)`, where `init` is a fit."""
    zeros = getattr(learner, "zeros", None)
    return learner.init(data, stream) if zeros is None else zeros(data)


def moving_parts(learner: Differentiable, model: Array) -> Mask:
    """Which numbers of a model steps change: all, unless a learner says otherwise (`moves`)."""
    moves = getattr(learner, "moves", None)
    return np.ones(np.shape(model), dtype=bool) if moves is None else np.asarray(moves)


def keeps_steps(adopter: Adopter) -> TypeGuard[Keeping]:
    """Whether an adopter chooses among remembered steps."""
    return isinstance(adopter, Keeping) and adopter.keeps


def can_keep(fleet: Fleet) -> TypeGuard[KeepingFleet]:
    """Whether a fleet remembers steps; one around another fleet does where that one does."""
    return _has(fleet, "keep")
