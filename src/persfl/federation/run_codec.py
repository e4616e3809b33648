"""Models and probes of one run, as arrays and back: what its terms say, worked out once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from persfl.federation.messages import Arrays
from persfl.proposers import GradientStep, Refit
from persfl.traits import has_gradients
from persfl.types import Learner, Model, Probe
from persfl.wire.models import model_from, model_to, probe_from, probe_to, sends_model
from persfl.wire.terms import Terms


class RunCodec:
    """The learner and the proposer of a run's terms, and how what they make travels.

    >>> codec = RunCodec(Terms(columns=("a", "b"), settings={"intercept": False}))
    >>> arrays = codec.model_to(np.array([1.0, 2.0]))
    >>> codec.model_from(arrays).tolist(), codec.models_travel
    ([1.0, 2.0], True)
    """

    def __init__(self, terms: Terms) -> None:
        self.terms = terms

    # Made when they are first used: a device first looks whether its owner allows the model, since
    # a network is a function of some installed module, which is imported.

    @cached_property
    def learner(self) -> Learner:
        """The model family."""
        learner: Learner = self.terms.learner()
        return learner

    @cached_property
    def proposer(self) -> GradientStep | Refit:
        """What peers do when asked."""
        return self.terms.proposer()

    @cached_property
    def models_travel(self) -> bool:
        """Whether a probe is the target's model."""
        return sends_model(self.proposer, self.learner)

    @property
    def size(self) -> int:
        """How many numbers a model has; 0 where it is no vector."""
        learner = self.learner
        return learner.size(self.terms.features) if has_gradients(learner) else 0

    def model_to(self, model: Model) -> dict[str, NDArray[Any]]:
        """A model as arrays."""
        return model_to(self.learner, model)

    def model_from(self, arrays: Arrays) -> Model:
        """A model that somebody else sent."""
        terms = self.terms
        return model_from(self.learner, arrays, terms.features, terms.classes)

    def probe_of(self, model: Model) -> Probe:
        """What leaves a target that has this model."""
        return self.proposer.ask(self.learner, model)

    def probe_to(self, probe: Probe) -> dict[str, NDArray[Any]]:
        """A probe as arrays."""
        return probe_to(self.proposer, self.learner, probe)

    def probe_from(self, arrays: Arrays) -> Probe:
        """A probe that somebody else sent."""
        terms = self.terms
        return probe_from(
            self.proposer, self.learner, arrays, terms.features, terms.classes
        )

    def mixed(
        self,
        model: Model,
        pieces: Sequence[Model],
        weights: Sequence[float],
        stay: float,
    ) -> Model:
        """The mix that was chosen of a model and others, as `LoopFleet` makes it."""
        parts = [(stay, model), *zip(weights, pieces, strict=True)]
        parts = [(weight, piece) for weight, piece in parts if weight > 0]
        if len(parts) == 1:
            return parts[0][1]
        models = [piece for _, piece in parts]
        vectors = all(isinstance(piece, np.ndarray) for piece in models)
        stacked = np.stack(models) if vectors else models
        return self.learner.mix(stacked, np.array([weight for weight, _ in parts]))
