"""Who meets whom: in pairs, to see whether gradients agree halfway, or everybody asked in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from persfl.checks import whole
from persfl.methods.shared_models import slopes
from persfl.seeds import Stream, stream
from persfl.training.state import peers_asked
from persfl.types import Array, IntArray

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet

MEETINGS = 5  # others that a device meets in a round


def partners(n: int, place: Stream) -> IntArray:
    """(pairs, 2) everybody in one pair at most.

    >>> sorted(partners(4, stream(0, "meet")).ravel().tolist())
    [0, 1, 2, 3]
    """
    order = place.generator().permutation(n)
    return np.asarray(order[: n - n % 2].reshape(-1, 2))


def in_turn(n: int, targets: IntArray, asked: int, place: Stream) -> IntArray:
    """(asked, targets) whom each target asks: nobody is asked twice in a row of these, so that
    each row is one message to a device.

    >>> found = in_turn(5, np.arange(5), 2, stream(0, "in turn"))
    >>> [len(set(row)) for row in found.tolist()]
    [5, 5]
    """
    ahead = 1 + place.generator().permutation(n - 1)[:asked]
    return np.asarray((targets + ahead[:, None]) % n)


def asked_in_turn(peers: int | str, n: int) -> int:
    """How many others a device asks in a round: "auto" is 20, or all there are."""
    if n < 2:
        return 0
    return min(whole("peers", peers_asked(peers, n), least=1), n - 1)


class Meetings:
    """What devices learn of each other when they meet: `weights` (targets, targets)."""

    def __init__(self, fleet: InProcessFleet, learn: float, seed: int) -> None:
        n = len(fleet.targets)
        self.weights = 1.0 - np.eye(n)
        self._fleet = fleet
        self._learn = learn
        self._seed = seed
        self._scale = 0.0  # of gradients, squared, when everybody met first

    def meet(self, own: Array, r: int, times: int) -> None:
        """Everybody meets somebody so many times, with models (targets, size)."""
        for k in range(times):
            self._meet(own, stream(self._seed, "meet", r, k))

    def _meet(self, own: Array, place: Stream) -> None:
        pairs = partners(len(own), place)
        if not len(pairs):
            return
        i, j = pairs.T
        middle = np.tile((own[i] + own[j]) / 2.0, (2, 1))
        them = self._fleet.targets[np.concatenate([i, j])]
        slope = slopes(self._fleet, middle, them, place.at("halfway").at(them))
        self._scale = self._scale or float((slope**2).sum(axis=1).mean())
        ours, theirs = np.split(slope, 2)
        agree = (ours * theirs).sum(axis=1) / (self._scale or 1.0)
        new = np.clip(self.weights[i, j] + self._learn * agree, 0.0, 1.0)
        self.weights[i, j] = new
        self.weights[j, i] = new
