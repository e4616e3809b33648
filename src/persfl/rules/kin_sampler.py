"""Whom kin asks: everyone once, then mostly kin, the one asked longest ago first, and always a
few others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from persfl.checks import whole
from persfl.rules.kin_adopter import KinAdopter
from persfl.rules.kin_notes import KinNotes
from persfl.seeds import distinct, stream
from persfl.trust import Trust
from persfl.types import IntArray


def to_meet(trust: Trust, many: int, known: IntArray, S: int, seed: int) -> IntArray:
    """(T, S) whom targets ask next of the `many` devices they get to know, of which they have met
    `known`; -1 for nobody.

    Each target has an order of its own, or everybody would ask the same ones first.
    """
    place = stream(seed, "kin")
    targets = trust.targets
    drawn = distinct(place, targets, np.array([trust.n - 1]), many)
    turn = np.argsort(place.at("order").at(targets).uniform(many), axis=1)
    order = np.take_along_axis(drawn + (drawn >= targets[:, None]), turn, axis=1)
    order = np.pad(order, ((0, 0), (0, S)), constant_values=-1)
    return np.ascontiguousarray(
        np.take_along_axis(order, known[:, None] + np.arange(S), axis=1)
    )


@dataclass(frozen=True)
class AskKin:
    """The sampler of `persfl.kin`. Nobody is asked (-1) while a target goes its own way, and once
    it is done.

    >>> AskKin(KinAdopter(peers=3))(Trust(5, np.array([0, 4])), 0, 0).tolist()
    [[4, 3, 1], [3, 2, 1]]
    """

    kin: KinAdopter

    def __call__(self, trust: Trust, r: int, seed: int) -> IntArray:
        S = whole(
            "peers", self.kin.peers, least=1, most=trust.n - 1, why=f"{trust.n} devices"
        )
        targets = trust.targets
        met = self.kin.met(trust.n)
        memory = KinNotes.of(trust.notes, len(targets))
        peers = np.full((len(targets), S), -1)
        known = (memory.panel >= 0).sum(axis=1)
        # those not met yet, in the order in which the panel grows
        if (known < met).any():
            peers = to_meet(trust, met, known, S, seed)
        asks = np.flatnonzero((known >= met) & ~memory.alone & ~memory.done)
        if len(asks):
            peers[asks] = self._again(memory, asks, S)
        return peers

    def _again(self, memory: KinNotes, asks: IntArray, S: int) -> IntArray:
        panel = memory.panel[asks]
        member = memory.member[asks]
        age = np.where(panel >= 0, memory.asked[asks].astype(np.float64), np.inf)
        first = np.argsort(np.where(member, age, np.inf), axis=1, kind="stable")[
            :, : S - self.kin.others
        ]
        row = np.arange(len(asks))[:, None]
        age[row, first] = np.where(member[row, first], -np.inf, age[row, first])
        return np.asarray(
            np.take_along_axis(
                panel, np.argsort(age, axis=1, kind="stable")[:, :S], axis=1
            )
        )
