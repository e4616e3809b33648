"""Peers that lie, for tests of rules and guards."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from persfl import GradientStep


@dataclass(frozen=True)
class Lying:
    """Gradient steps, except that those of some devices (known by their first number) are lies."""

    lie: Any
    liars: Any
    step: GradientStep

    ask = property(lambda self: self.step.ask)
    length = property(lambda self: self.step.length)
    advice = property(lambda self: self.step.advice)

    def answer(self, learner, probe, data, place):
        honest = self.step.answer(learner, probe, data, place)
        return np.where(
            np.isin(data.X[..., 0, 0], self.liars)[..., None],
            self.lie(probe, honest),
            honest,
        )
