"""Whom kin asks: everyone once, then mostly kin, the one asked longest ago first, and always a few others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from persfl.checks import whole
from persfl.rules.kinship import Kin
from persfl.rules.memory import Memory
from persfl.seeds import distinct, stream
from persfl.trust import Trust
from persfl.types import IntArray


@dataclass(frozen=True)
class AskKin:
    """The sampler of `persfl.kin`. Nobody is asked (-1) while a target goes its own way, and once it is done.

    >>> AskKin(Kin(peers=3))(Trust(5, np.array([0, 4])), 0, 0).tolist()
    [[2, 3, 4], [0, 1, 3]]
    """

    kin: Kin

    def __call__(self, trust: Trust, r: int, seed: int) -> IntArray:
        S = whole("peers", self.kin.peers, least=1, most=trust.n - 1, why=f"{trust.n} devices")
        targets, met = trust.targets, self.kin.met(trust.n)
        order = distinct(stream(seed, "kin"), targets, np.array([trust.n - 1]), met)
        order = order + (order >= targets[:, None])
        if not trust.notes:
            return np.ascontiguousarray(order[:, :S])
        memory = Memory.of(trust.notes, len(targets))
        peers = np.full((len(targets), S), -1)
        known = (memory.panel >= 0).sum(axis=1)
        for t in np.flatnonzero(known < met).tolist():  # those not met yet, in the order in which the panel grows
            next_ = order[t, known[t] : known[t] + S]
            peers[t, : len(next_)] = next_
        asks = np.flatnonzero((known >= met) & ~memory.alone & ~memory.done)
        if len(asks):
            peers[asks] = self._again(memory, asks, S)
        return peers

    def _again(self, memory: Memory, asks: IntArray, S: int) -> IntArray:
        panel, member = memory.panel[asks], memory.member[asks]
        age = np.where(panel >= 0, memory.asked[asks].astype(np.float64), np.inf)
        first = np.argsort(np.where(member, age, np.inf), axis=1, kind="stable")[:, : S - self.kin.others]
        row = np.arange(len(asks))[:, None]
        age[row, first] = np.where(member[row, first], -np.inf, age[row, first])
        return np.asarray(np.take_along_axis(panel, np.argsort(age, axis=1, kind="stable")[:, :S], axis=1))
