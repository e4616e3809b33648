"""Bandits: whom to ask, by what earlier answers brought.

The reward of an answer is by how much it lowers the asker's loss. Both samplers ask everybody once
before they ask anybody twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from persfl.checks import real, whole
from persfl.seeds import Stream, stream
from persfl.trust import Trust
from persfl.types import Array, IntArray


def drawn_first(scores: Array, targets: IntArray, size: int, place: Stream) -> IntArray:
    """(T, size) the devices of highest score (T, n), never the target; equal ones by chance.

    >>> drawn_first(
    ...     np.array([[9.0, 1.0, 3.0, 2.0]]), np.array([0]), 2, stream(0)
    ... ).tolist()
    [[2, 3]]
    """
    n = scores.shape[1]
    chance = place.at(targets).uniform(n)
    scores = scores.copy()
    scores[np.arange(len(targets)), targets] = -np.inf
    order = np.lexsort([chance, -scores], axis=1)
    return np.asarray(order[:, :size], dtype=np.int64)


class _Known:
    """What trust says of every pair, as (T, n): times answered, mean reward and its variance."""

    def __init__(self, trust: Trust) -> None:
        pairs = trust.pairs
        shape = (len(trust.targets), trust.n)
        place = np.divmod(pairs.key, trust.n)
        count = np.zeros(shape)
        reward = np.zeros(shape)
        squared = np.zeros(shape)
        # asked without an answer: a time, and nothing gained
        count[place] = np.maximum(pairs.answered, pairs.asked)
        reward[place] = pairs.reward
        squared[place] = pairs.reward_squared
        times = np.maximum(count, 1.0)
        self.count = count
        self.mean = reward / times
        own = np.maximum(squared / times - self.mean**2, 0.0)
        total = np.maximum(count.sum(axis=1, keepdims=True), 1.0)
        middle = reward.sum(axis=1, keepdims=True) / total
        spread = np.maximum(squared.sum(axis=1, keepdims=True) / total - middle**2, 0.0)
        # one answer has no spread of its own: it counts as the target's usual one
        self.variance = (own * count + spread) / (count + 1.0)


@dataclass(frozen=True)
class UCB:
    """`peers` devices by mean reward plus `explore` times what is unknown of it.

    mean + explore * sqrt(2 log(asked) variance / times)    (UCB1, Auer et al. 2002)

    >>> UCB(2)(Trust(4, np.array([0])), 0, 0).shape
    (1, 2)
    """

    peers: int = 20
    explore: float = 1.0

    def __call__(self, trust: Trust, r: int, seed: int) -> IntArray:
        n = trust.n
        size = whole("peers", self.peers, least=1, most=n - 1, why=f"{n} devices")
        known = _Known(trust)
        asked = np.maximum(known.count.sum(axis=1, keepdims=True), 1.0)
        unknown = np.sqrt(
            2.0 * np.log(asked) * known.variance / np.maximum(known.count, 1.0)
        )
        wide = real("explore", self.explore, least=0) * unknown
        scores = np.where(known.count > 0, known.mean + wide, np.inf)
        return drawn_first(scores, trust.targets, size, stream(seed, "sample", r))


@dataclass(frozen=True)
class Thompson:
    """`peers` devices by rewards drawn from what is known of their means (Thompson 1933).

    >>> Thompson(2)(Trust(4, np.array([0])), 0, 0).shape
    (1, 2)
    """

    peers: int = 20

    def __call__(self, trust: Trust, r: int, seed: int) -> IntArray:
        n = trust.n
        size = whole("peers", self.peers, least=1, most=n - 1, why=f"{n} devices")
        known = _Known(trust)
        place = stream(seed, "thompson", r).at(trust.targets)
        two = place.uniform(2, n)
        normal = np.sqrt(-2.0 * np.log1p(-two[:, 0])) * np.cos(2.0 * np.pi * two[:, 1])
        deviation = np.sqrt(known.variance / np.maximum(known.count, 1.0))
        scores = known.mean + deviation * normal
        scores = np.where(known.count > 0, scores, np.inf)
        return drawn_first(scores, trust.targets, size, stream(seed, "sample", r))
