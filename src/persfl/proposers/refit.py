"""Algorithm 2: a peer refits a model to its own rows plus public points labelled by the target's
current model.

h~ = argmin_h  step_size * L_peer(h) + (1 / |public|) * sum_x (h(x) - h_now(x))^2

A network is not fitted anew for every question. It comes near that minimum by a few gradient steps
of `rate` on the same sum (divided by its weights), from the target's own model: the first follows
the peer's rows, the later ones are held back by the public points (proximal steps).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from persfl.checks import numbers, real, whole
from persfl.errors import InputError
from persfl.proposers.gradient import GradientStep, distance
from persfl.seeds import stream as anywhere
from persfl.traits import has_chances, has_gradients, has_tensors, traits_of
from persfl.types import Array, Data, Learner, Model, Probe, Proposal

if TYPE_CHECKING:
    from persfl.seeds import Stream


@dataclass(frozen=True, init=False, eq=False)
class Refit:
    """Weighted training on private rows and public points.

    What is sent are the current model's labels at the public points, not the model; a peer may
    answer with any family. By default a private row weighs `step_size / rows` and a public point `1
    / |public|`, as in the paper's equation; `private_weight` and
    `public_weight` replace these by a weight per row (the authors' notebook uses 1 and 1).
    `soft=True` sends a classifier's chances instead of its labels: each public point then counts
    once per class, weighted by its chance.

    `steps` proximal steps of `rate` take the place of the fit (learners with gradients; `Network`
    takes 5 unless told otherwise, 0 is a fit anew). The target's model itself is sent then, and
    `soft` is the default where there are classes: chances, unlike labels, leave the target's model
    where it is as long as no private row pulls.

    Step lengths are those of proximal steps; of fits they are not measured (NaN): that would cost
    another prediction per answer.

    >>> from persfl import Linear
    >>> proposer, learner = Refit([[1.0]]), Linear()
    >>> data = Data(np.array([[1.0]]), np.array([2.0]))
    >>> proposer.answer(learner, proposer.ask(learner, np.zeros(1)), data, None).round(
    ...     6
    ... ).tolist()
    [1.0]
    >>> near = Refit([[1.0]], steps=5, rate=0.5)
    >>> near.answer(learner, near.ask(learner, np.zeros(1)), data, None).round(
    ...     6
    ... ).tolist()
    [1.0]
    """

    public: Array
    step_size: float
    private_weight: float | None
    public_weight: float | None
    soft: bool | None
    steps: int | None
    rate: float

    def __init__(
        self,
        public: Array | Sequence[Sequence[float]],
        *,
        step_size: float = 1.0,
        private_weight: float | None = None,
        public_weight: float | None = None,
        soft: bool | None = None,
        steps: int | None = None,
        rate: float = 0.1,
    ) -> None:
        points = numbers(public, where="public", axes=2)
        if not np.isfinite(points).all() or not len(points):
            raise InputError(
                "public must hold at least one point and finite numbers only."
            )
        if private_weight is not None:
            real("private_weight", private_weight, above=0)
        if public_weight is not None:
            real("public_weight", public_weight, least=0)
        object.__setattr__(self, "public", points)
        object.__setattr__(self, "step_size", real("step_size", step_size, above=0))
        object.__setattr__(self, "private_weight", private_weight)
        object.__setattr__(self, "public_weight", public_weight)
        object.__setattr__(self, "soft", None if soft is None else bool(soft))
        object.__setattr__(
            self, "steps", None if steps is None else whole("steps", steps, least=0)
        )
        object.__setattr__(self, "rate", real("rate", rate, above=0))

    def __repr__(self) -> str:
        return f"Refit({len(self.public)} public points, step_size={self.step_size:g})"

    @property
    def extra_rows(self) -> int:
        """How many rows an answer is fitted to beside the peer's own."""
        return len(self.public)

    def check_features(self, features: int) -> None:
        """Public points must have the devices' columns."""
        if self.public.shape[1] != features:
            raise InputError(
                f"public points must have the devices' {features} features. Got"
                f" {self.public.shape[1]}."
            )

    def near(self, learner: Learner) -> int:
        """How many proximal steps an answer takes; 0 where it is a fit."""
        if self.steps is not None:
            return self.steps
        return learner.refit_steps if has_tensors(learner) else 0

    def softly(self, learner: Learner) -> bool:
        """Whether public points carry chances."""
        chances = traits_of(learner).chances
        if self.soft and not chances:
            raise InputError(
                f"soft=True sends chances of classes, which {learner!r} does not have. Leave it"
                " out."
            )
        return self.near(learner) > 0 and chances if self.soft is None else self.soft

    def ask(self, learner: Learner, model: Model) -> Probe:
        """The model's labels at the public points: (..., points), or with `soft` (chances (...,
        points, classes), classes).

        For proximal steps the model itself.
        """
        if not self.near(learner):
            return self._seen(learner, model)
        self.softly(learner)
        if not has_gradients(learner):
            raise InputError(
                f"Refit takes steps with learners that have gradients. Got {learner!r}: leave steps"
                " out."
            )
        return model

    def _seen(self, learner: Learner, model: Model) -> Probe:
        """What the model says about the public points."""
        if self.softly(learner) and has_chances(learner):
            return learner.chances(model, self.public)
        return learner.labels(model, self.public)

    def answer(
        self, learner: Learner, probe: Probe, data: Data, stream: Stream | None
    ) -> Proposal:
        """A model fitted to both."""
        steps = self.near(learner)
        rows = self._both(
            data,
            self._seen(learner, probe) if steps else probe,
            softly=self.softly(learner),
        )
        if not steps:
            return learner.fit(rows, stream or anywhere(0))
        return GradientStep(self.rate, steps=steps).answer(learner, probe, rows, None)

    def _both(self, data: Data, seen: Probe, *, softly: bool) -> Data:
        """Private rows and public points."""
        points, labels, mass = self._public(seen, softly=softly)
        lead = data.y.shape[:-1]
        labels = np.broadcast_to(labels, (*lead, labels.shape[-1]))
        mass = np.broadcast_to(mass, (*lead, mass.shape[-1]))
        return Data(
            np.concatenate(
                [data.X, np.broadcast_to(points, (*lead, *points.shape))], axis=-2
            ),
            np.concatenate([data.y, labels], axis=-1),
            np.concatenate([self._own(data.weight), mass], axis=-1),
        )

    def _own(self, weight: Array) -> Array:
        """What private rows weigh."""
        if self.private_weight is not None:
            return self.private_weight * weight
        total = weight.sum(axis=-1, keepdims=True)
        return np.asarray(self.step_size * weight / np.where(total > 0, total, 1.0))

    @property
    def point_weight(self) -> float:
        """What a public point weighs."""
        return (
            1.0 / len(self.public) if self.public_weight is None else self.public_weight
        )

    def _public(self, seen: Probe, *, softly: bool) -> tuple[Array, Array, Array]:
        """Points, labels and weights that carry the target's model."""
        if not softly:
            return self.public, seen, np.full(seen.shape, self.point_weight)
        chances, labels = seen
        k = len(labels)
        flat = self.point_weight * chances.reshape(*chances.shape[:-2], -1)
        return (
            np.repeat(self.public, k, axis=0),
            np.broadcast_to(np.tile(labels, len(self.public)), flat.shape),
            flat,
        )

    def length(self, learner: Learner, probe: Probe, proposal: Proposal) -> Any:
        """The distance moved by proximal steps; of a fit not measured."""
        if self.near(learner):
            return distance(probe, proposal)
        return (
            np.full(np.shape(proposal)[:-1], np.nan)
            if isinstance(proposal, np.ndarray)
            else np.nan
        )

    def advice(self) -> str:
        return (
            "the refitted models overflow: standardize the features and labels, or take smaller"
            f" steps than rate={self.rate:g}"
        )
