"""Adopt the mean of the few best answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from persfl.checks import whole
from persfl.trust import Trust
from persfl.types import Array, Choice, IntArray


@dataclass(frozen=True)
class TopK:
    """The mean of the `k` answers with the smallest own losses (of all usable ones if there are
    fewer).

    Averages out the noise of single answers; needs a learner whose models can be mixed.

    >>> choice = TopK(2)(None, np.array([[4, 7, 9]]), np.array([[1.0, 3.0, 2.0, 1.5]]))
    >>> choice.peers.tolist(), choice.weights.tolist()
    ([[9, 7]], [[0.5, 0.5]])
    """

    k: int = 4

    def __call__(self, trust: Trust | None, peers: IntArray, losses: Array) -> Choice:
        k = min(whole("k", self.k, least=1), peers.shape[1])
        order = np.argsort(losses[:, 1:], axis=1, kind="stable")[:, :k]
        usable = np.isfinite(np.take_along_axis(losses[:, 1:], order, axis=1))
        count = usable.sum(axis=1)
        chosen = np.where(usable, np.take_along_axis(peers, order, axis=1), -1)
        return Choice(
            chosen,
            usable / np.maximum(count, 1)[:, None],
            (count == 0).astype(np.float64),
        )
