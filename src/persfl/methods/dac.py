"""DAC: ask peers with chances that grow with how well their models fit own rows.

s_ij = 1 / L_i(w_j)     asked with probability softmax over j of ( focus * s_ij / max_k s_ik )

Of a peer that was never asked it takes s_kj from that asked k whose model fits it best (two hops).
The mean of own and all asked models, by rows, is adopted. Its authors take focus * s_ij itself,
which is tied to the scale of the loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from persfl.checks import real
from persfl.methods.gossip import GossipMethod, mean_with_own, pair_notes
from persfl.methods.method_fields import setting
from persfl.samplers.bandits import drawn_first
from persfl.seeds import stream
from persfl.trust import Trust
from persfl.types import Adopter, AnyArray, Array, Choice, IntArray, Kept, Sampler

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet

LIKE = "like"  # (targets, devices) the last 1 / loss; 0 where none is known


def two_hops(like: Array, targets: IntArray) -> Array:
    """(T, n) what is known, and for those never asked what the best known peer knows of them.

    >>> like = np.array([[0.0, 2.0, 0.0], [0.0, 0.0, 5.0], [0.0, 0.0, 0.0]])
    >>> two_hops(like, np.arange(3))[0].tolist()
    [0.0, 2.0, 5.0]
    """
    n = like.shape[1]
    place = np.full(n, -1)
    place[targets] = np.arange(len(targets))
    reachable = np.where(place >= 0, like, 0.0)
    best = reachable.argmax(axis=1)
    through = np.where(place[best] >= 0, place[best], 0)
    there = np.where(reachable.max(axis=1) > 0, 1.0, 0.0)[:, None] * like[through]
    return np.where(like > 0, like, there)


@dataclass(frozen=True)
class AskAlike:
    """`peers` devices, drawn without replacement by softmax(focus * likeness)."""

    peers: int
    focus: float

    def __call__(self, trust: Trust, r: int, seed: int) -> IntArray:
        targets = trust.targets
        like = trust.notes.get(LIKE)
        known = np.zeros((len(targets), trust.n)) if like is None else np.asarray(like)
        known = two_hops(known, targets)
        most = known.max(axis=1, keepdims=True)
        share = known / np.where(most > 0, most, 1.0)
        # the largest of softmax logits plus Gumbel noise are a draw without replacement
        chance = stream(seed, "alike", r).at(targets).uniform(trust.n)
        gumbel = -np.log(-np.log(np.clip(chance, 1e-12, 1.0 - 1e-12)))
        scores = self.focus * share + gumbel
        return drawn_first(scores, targets, self.peers, stream(seed, "sample", r))


@dataclass(frozen=True, eq=False)
class MixAll:
    """Own model and those of all that were asked, by rows; remembers how well they fitted."""

    rows: Array

    def note(
        self,
        trust: Trust,
        r: int,
        peers: IntArray,
        losses: Array,
        kept: Kept | None,
    ) -> Mapping[str, AnyArray]:
        """1 / loss of those just asked."""
        like = pair_notes(trust, LIKE)
        answers = losses[:, 1:]
        row, column = np.nonzero(np.isfinite(answers) & (peers >= 0))
        small = np.maximum(np.abs(answers[row, column]), 1e-12)
        like[row, peers[row, column]] = 1.0 / small
        return {LIKE: like}

    def __call__(self, trust: Trust, peers: IntArray, losses: Array) -> Choice:
        usable = np.isfinite(losses[:, 1:]) & (peers >= 0)
        return mean_with_own(peers, usable, trust.targets, self.rows)


@dataclass(frozen=True)
class DAC(GossipMethod):
    """Gossip with chances that grow with how well peers' models fit."""

    name: ClassVar[str] = "dac"
    about: ClassVar[str] = (
        "Gossip, with those asked more often whose models fit own rows"
    )
    source: ClassVar[str] = "Zec, Ekblom, Willbo, Mogren, Girdzijauskas 2022"
    told: ClassVar[str] = "how much likeness counts"

    focus: float = setting(30.0, "how much likeness counts (tau of the paper)")

    def parts(self, fleet: InProcessFleet, rounds: int) -> tuple[Sampler, Adopter]:
        focus = real("focus", self.focus, least=0)
        return AskAlike(self.asked(fleet.n), focus), MixAll(fleet.home.static.total)
