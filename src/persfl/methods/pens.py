"""PENS: find the peers whose models fit own rows best, then gossip with them.

first: ask some at random; average own model and the `best` of lowest loss on own rows, by rows
friends of i: chosen more often than by chance (rounds * best / devices)
then: average own model and those of some random friends
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from persfl.checks import real, whole
from persfl.methods.gossip import GossipMethod, mean_with_own, pair_notes
from persfl.methods.method_fields import setting
from persfl.samplers.bandits import drawn_first
from persfl.samplers.uniform import Uniform
from persfl.seeds import stream
from persfl.trust import Trust
from persfl.types import Adopter, AnyArray, Array, Choice, IntArray, Kept, Mask, Sampler

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet

CHOSEN = "chosen"  # (targets, devices) how often, as a note of trust


@dataclass(frozen=True)
class AskFriends:
    """Anybody for `first` rounds, then those who were chosen more often than by chance."""

    peers: int
    best: int
    first: int

    def __call__(self, trust: Trust, r: int, seed: int) -> IntArray:
        if r < self.first or CHOSEN not in trust.notes:
            return Uniform(self.peers)(trust, r, seed)
        chosen = np.asarray(trust.notes[CHOSEN])
        friend = chosen > self.first * self.best / trust.n
        scores = np.where(friend, 1.0, 0.0)
        place = stream(seed, "sample", r)
        found = drawn_first(scores, trust.targets, self.peers, place)
        known = np.take_along_axis(friend, found, axis=1)
        return np.where(known, found, -1)


@dataclass(frozen=True, eq=False)
class MixBest:
    """Own model and the `best` peers', for `first` rounds; then all that were asked."""

    rows: Array
    best: int
    first: int

    def note(
        self,
        trust: Trust,
        r: int,
        peers: IntArray,
        losses: Array,
        kept: Kept | None,
    ) -> Mapping[str, AnyArray]:
        """How often each peer was among the best, while that is being found out."""
        chosen = pair_notes(trust, CHOSEN)
        if r < self.first:
            good = self._good(losses[:, 1:])
            row, column = np.nonzero(good)
            np.add.at(chosen, (row, peers[row, column]), 1.0)
        return {CHOSEN: chosen, "round": np.array(r)}

    def __call__(self, trust: Trust, peers: IntArray, losses: Array) -> Choice:
        finding = int(trust.notes["round"]) < self.first
        answers = losses[:, 1:]
        good = self._good(answers) if finding else np.isfinite(answers)
        return mean_with_own(peers, good, trust.targets, self.rows)

    def _good(self, answers: Array) -> Mask:
        rank = np.argsort(np.argsort(answers, axis=1, kind="stable"), axis=1)
        return np.asarray((rank < self.best) & np.isfinite(answers))


@dataclass(frozen=True)
class PENS(GossipMethod):
    """Find peers whose models fit own rows, then gossip with them."""

    name: ClassVar[str] = "pens"
    about: ClassVar[str] = "Gossip with peers whose models fit own rows best"
    source: ClassVar[str] = "Onoszko, Karlsson, Mogren, Zec 2021"
    told: ClassVar[str] = "how many answers count, and when friends have been found"

    best: int = setting(
        2, "how many of the answers are averaged while friends are found"
    )
    finding: float = setting(0.5, "the share of the rounds in which friends are found")

    def parts(self, fleet: InProcessFleet, rounds: int) -> tuple[Sampler, Adopter]:
        asked = self.asked(fleet.n)
        best = min(whole("best", self.best, least=1), asked)
        share = real("finding", self.finding, above=0, most=1)
        first = max(1, round(share * rounds))
        rows = fleet.home.static.total
        return AskFriends(asked, best, first), MixBest(rows, best, first)
