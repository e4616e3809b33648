"""Offers for squared loss: refits, each by the closed form of Algorithm 2's question.

Starting points are nothing, one model for the other devices, the mean of the other devices' coefficients (`Prior`), and what
neighbours answer from there (`Neighbours`). From each, the device refits to its own rows, more or less strongly drawn toward the
starting point.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from persfl.blending.memory import Neighbours
from persfl.blending.part import Asked, Part
from persfl.blending.prior import _parts, learned, own_strength
from persfl.blending.toward import Toward, drawn, moments
from persfl.types import Array

PULLS = {"own": (10.0, 1.0, 0.1), "pooled": (np.inf, 10.0, 1.0, 0.1), "mean": (np.inf, 3.0, 1.0, 0.3),
         "neighbours": (np.inf, 3.0, 1.0, 0.3)}  # fmt: skip
ROUNDS = 4
FREE = 0.01  # how strongly an intercept is drawn, where slopes are drawn with 1


def peers_for(asks: int, known: int) -> int:
    """How many peers a round, when the first round asks twice as many."""
    return max(1, min(asks // (ROUNDS + 1), known // 2 or 1))


def offers(part: Part) -> tuple[dict[tuple[str, float], Array], Asked]:
    """(copies, size) per starting point and pull; `inf` is the starting point itself."""
    learner, own = part.learner, part.own
    prior = learned(learner, part.others, seed=part.seed)
    strength, noise = own_strength(learner, own, prior)
    size = len(prior.mean)
    start = np.broadcast_to(prior.mean, (len(own), size))
    rule = Neighbours(peers_for(part.asks, len(part.others)), len(part.others), own.total, noise)
    asked = part.neighbours(Toward(prior.strength), rule, start, ROUNDS)
    plain = np.ones(size)
    if learner.intercept:
        plain[-1] = FREE
    alike = np.broadcast_to(plain, (len(own), size))
    starts: dict[str, tuple[Array, Array]] = {
        "own": (np.zeros((len(own), size)), alike),
        "pooled": (np.broadcast_to(prior.pooled, (len(own), size)), alike),
        "mean": (start, strength),
        "neighbours": (asked.models, strength),
    }
    found: dict[tuple[str, float], Any] = {(name, pull): np.empty((len(own), size)) for name in starts for pull in PULLS[name]}
    for lo, hi in _parts(own, np.arange(len(own))):
        gram, pulled = moments(learner, own.gather(np.arange(lo, hi)))
        for name, (toward, how) in starts.items():
            for pull in PULLS[name]:
                near = toward[lo:hi]
                found[name, pull][lo:hi] = near if pull == np.inf else drawn(gram, pulled, near, pull * how[lo:hi] + 1e-8)
    return found, asked
