"""Adopt every answer a little: a softmax of rewards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from persfl.checks import real
from persfl.trust import Trust
from persfl.types import Array, Choice, IntArray


@dataclass(frozen=True)
class Weighted:
    """Weights `softmax(reward / (temperature * own loss))` over the usable answers.

    Rewards are taken relative to the target's own loss, so that one temperature serves from the
    first round to the last; near 0 it becomes `Best`, large values average everybody. An answer
    that removes a tenth of the loss more than another weighs
    `exp(0.1 / temperature)` times as much.

    >>> choice = Weighted(0.1)(None, np.array([[4, 7]]), np.array([[1.0, 0.9, 0.8]]))
    >>> choice.weights.round(3).tolist()
    [[0.269, 0.731]]
    """

    temperature: float = 0.02

    def __call__(self, trust: Trust | None, peers: IntArray, losses: Array) -> Choice:
        temperature = real("temperature", self.temperature, above=0)
        answers = losses[:, 1:]
        usable = np.isfinite(answers) & (peers >= 0)
        none = ~usable.any(axis=1)
        least = np.where(usable, answers, np.inf).min(axis=1, initial=np.inf)
        scale = np.maximum(
            np.abs(losses[:, 0]) * temperature, np.finfo(np.float64).tiny
        )
        with np.errstate(invalid="ignore", over="ignore"):
            logits = np.where(
                usable, -(answers - least[:, None]) / scale[:, None], -np.inf
            )
        weights = np.exp(logits)
        total = np.where(none, 1.0, weights.sum(axis=1))
        return Choice(
            np.where(usable, peers, -1),
            weights / total[:, None],
            np.asarray(none, dtype=np.float64),
        )
