"""Algorithm 1: a peer takes a small gradient step from the target's model on its own rows.

w~ = w - step_size * grad L_peer(w)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from persfl.checks import real, whole
from persfl.errors import InputError
from persfl.traits import has_gradients
from persfl.types import Array, Data, Learner

if TYPE_CHECKING:
    from persfl.seeds import Stream


@dataclass(frozen=True)
class GradientStep:
    """`steps` gradient steps of `step_size`, on all rows or on `batch` random rows at a time.

    >>> from persfl import Linear
    >>> proposer, learner = GradientStep(0.25), Linear()
    >>> data = Data(np.array([[1.0]]), np.array([2.0]))
    >>> proposer.answer(
    ...     learner, proposer.ask(learner, np.zeros(1)), data, None
    ... ).tolist()
    [1.0]
    """

    step_size: float
    steps: int = 1
    batch: int | None = None

    def __post_init__(self) -> None:
        real("step_size", self.step_size, above=0)
        whole("steps", self.steps, least=1)
        if self.batch is not None:
            whole("batch", self.batch, least=1)

    def ask(self, learner: Learner, model: Array) -> Array:
        """The target's weights."""
        return model if has_gradients(learner) else _refused(learner)

    def answer(
        self, learner: Learner, probe: Array, data: Data, stream: Stream | None
    ) -> Array:
        """The weights after the steps."""
        if not has_gradients(learner):
            return _refused(learner)
        model = probe
        # overflow shows as a loss of inf, and is handled there
        with np.errstate(all="ignore"):
            for step in range(self.steps):
                seen = (
                    data
                    if self.batch is None or stream is None
                    else minibatch(data, self.batch, stream.at("batch", step))
                )
                model = model - self.step_size * learner.grad(model, seen)
        return model

    def length(self, learner: Learner, probe: Array, proposal: Array) -> Any:
        """The Euclidean distance moved."""
        return distance(probe, proposal)

    def advice(self) -> str:
        return (
            f"step_size={self.step_size:g} is too large: try {self.step_size / 2:g} or less, or"
            " standardize the features"
        )


def _refused(learner: Learner) -> NoReturn:
    raise InputError(
        f"GradientStep needs a learner with gradients, such as Linear. Got {learner!r}: use"
        " Refit(public)."
    )


def distance(probe: Array, proposal: Array) -> Any:
    """(...) how far vectors lie apart; inf or NaN where they overflow."""
    with np.errstate(all="ignore"):
        return np.sqrt(((proposal - probe) ** 2).sum(axis=-1))


def minibatch(data: Data, size: int, stream: Stream) -> Data:
    """`size` random rows (all rows where there are fewer), each set equally likely; the same
    rows in every fleet.
    """
    order = np.where(data.weight > 0, stream.uniform(data.rows), np.inf)
    return data.take(np.argsort(order, axis=-1)[..., :size])
