"""Algorithm 2: a peer refits a model to its own rows plus public points labelled by the target's current model.

h~ = argmin_h  step_size * L_peer(h) + (1 / |public|) * sum_x (h(x) - h_now(x))^2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from persfl.checks import numbers, real
from persfl.errors import InputError
from persfl.seeds import Stream
from persfl.types import Array, Data


@dataclass(frozen=True, init=False, eq=False)
class Refit:
    """Weighted training on private rows and public points.

    What is sent are the current model's labels at the public points, not the model; a peer may answer with any family. By default a
    private row weighs `step_size / rows` and a public point `1 / |public|`, as in the paper's equation; `private_weight` and
    `public_weight` replace these by a weight per row (the authors' notebook uses 1 and 1). `soft=True` sends a classifier's chances
    instead of its labels: each public point then counts once per class, weighted by its chance.

    Step lengths are not measured (NaN): that would cost another prediction per answer.

    >>> from persfl import Linear
    >>> proposer, learner = Refit([[1.0]]), Linear()
    >>> data = Data(np.array([[1.0]]), np.array([2.0]))
    >>> proposer.answer(learner, proposer.ask(learner, np.zeros(1)), data, None).round(6).tolist()
    [1.0]
    """

    public: Array
    step_size: float
    private_weight: float | None
    public_weight: float | None
    soft: bool

    def __init__(
        self,
        public: Array | Sequence[Sequence[float]],
        *,
        step_size: float = 1.0,
        private_weight: float | None = None,
        public_weight: float | None = None,
        soft: bool = False,
    ) -> None:
        points = numbers(public, where="public", axes=2)
        if not np.isfinite(points).all() or not len(points):
            raise InputError("public must hold at least one point and finite numbers only.")
        if private_weight is not None:
            real("private_weight", private_weight, above=0)
        if public_weight is not None:
            real("public_weight", public_weight, least=0)
        object.__setattr__(self, "public", points)
        object.__setattr__(self, "step_size", real("step_size", step_size, above=0))
        object.__setattr__(self, "private_weight", private_weight)
        object.__setattr__(self, "public_weight", public_weight)
        object.__setattr__(self, "soft", bool(soft))

    def __repr__(self) -> str:
        return f"Refit({len(self.public)} public points, step_size={self.step_size:g})"

    @property
    def extra_rows(self) -> int:
        """How many rows an answer is fitted to beside the peer's own."""
        return len(self.public)

    def check_features(self, features: int) -> None:
        """Public points must have the devices' columns."""
        if self.public.shape[1] != features:
            raise InputError(f"public points must have the devices' {features} features. Got {self.public.shape[1]}.")

    def ask(self, learner: Any, model: Any) -> Any:
        """The model's labels at the public points: (..., points), or with `soft` (chances (..., points, classes), classes)."""
        if self.soft:
            return learner.chances(model, self.public)
        return learner.labels(model, self.public)

    def answer(self, learner: Any, probe: Any, data: Data, stream: Stream | None) -> Any:
        """A model fitted to both."""
        points, labels, mass = self._public(probe)
        lead = data.y.shape[:-1]
        labels, mass = np.broadcast_to(labels, (*lead, labels.shape[-1])), np.broadcast_to(mass, (*lead, mass.shape[-1]))
        if self.private_weight is None:
            total = data.weight.sum(axis=-1, keepdims=True)
            own = self.step_size * data.weight / np.where(total > 0, total, 1.0)
        else:
            own = self.private_weight * data.weight
        rows = Data(
            np.concatenate([data.X, np.broadcast_to(points, (*lead, *points.shape))], axis=-2),
            np.concatenate([data.y, labels], axis=-1),
            np.concatenate([own, mass], axis=-1),
        )
        return learner.fit(rows, stream)

    def _public(self, probe: Any) -> tuple[Array, Array, Array]:
        """Points, labels and weights that carry the target's model."""
        each = 1.0 / len(self.public) if self.public_weight is None else self.public_weight
        if not self.soft:
            return self.public, probe, np.full(probe.shape, each)
        chances, labels = probe
        k = len(labels)
        flat = chances.reshape(*chances.shape[:-2], -1)
        return np.repeat(self.public, k, axis=0), np.broadcast_to(np.tile(labels, len(self.public)), flat.shape), each * flat

    def length(self, learner: Any, probe: Any, proposal: Any) -> Any:
        """Not measured."""
        return np.full(np.shape(proposal)[:-1], np.nan) if isinstance(proposal, np.ndarray) else np.nan

    def advice(self) -> str:
        return "the refitted models predict values that overflow: standardize the features and labels"
