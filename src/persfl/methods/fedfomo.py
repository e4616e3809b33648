"""FedFomo: mix in the models of peers by how much they gain on own rows, per distance.

p_i = model before own steps;  candidates: own model after them, and those of `peers` others
a_j = max(0, (V_i(p_i) - V_i(w_j)) / ||w_j - p_i||), normalised      V_i: loss on rows held back
w_i <- p_i + sum_j a_j (w_j - p_i);  own model where all a_j are 0

It remembers the sums of a_j, and asks those with the largest; with a chance of `random`, less 0.05
a round, somebody at random instead. A fifth of every device's rows is held back, to judge by. Own
steps that raise the loss of the rows that they learn from are not taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from persfl.checks import real, whole
from persfl.devices import Devices
from persfl.fleets.share import Share
from persfl.methods.gossip import GossipMethod
from persfl.methods.method_fields import setting
from persfl.methods.protocol import Needs
from persfl.methods.shared_models import all_devices, hold, start_of
from persfl.proposers.gradient import distance
from persfl.samplers.bandits import drawn_first
from persfl.seeds import stream
from persfl.trust import Trust
from persfl.types import Array, Choice, IntArray, Round

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet

HELD = 0.2
LESS = 0.05  # of the chance to ask at random, each round


def rows_apart(rows: Devices, seed: int) -> tuple[Devices, Devices]:
    """Rows to learn from, and a fifth to judge by; a single row is for both."""
    order = stream(seed, "held").generator().random(len(rows.X))
    rank = np.argsort(np.lexsort([order, rows.owner]), kind="stable")
    rank = rank - rows.start[rows.owner]
    count = rows.counts[rows.owner]
    judge = rank < np.maximum(1, np.round(HELD * count))
    parts = []
    for mine in (~judge | (count < 2), judge):
        who = np.where(mine, rows.owner, -1)
        made = Devices.grouped(rows.X, rows.y, who, rows.ids, weight=rows.weight)
        parts.append(made)
    return parts[0], parts[1]


def own_losses(fleet: InProcessFleet, models: Array) -> Array:
    """(n,) what each device's model loses on its own rows."""
    return np.diagonal(fleet.scored(models))


def gain_weights(before: Array, after: Array, lengths: Array) -> Array:
    """(T, K) normalised a_j of candidates whose losses were `after`; all 0 where none gains.

    >>> gain_weights(
    ...     np.array([1.0]), np.array([[0.5, 2.0, 0.0]]), np.array([[1.0, 1.0, 2.0]])
    ... )
    array([[0.5, 0. , 0.5]])
    """
    with np.errstate(all="ignore"):
        gain = np.maximum(0.0, (before[:, None] - after) / np.maximum(lengths, 1e-300))
    gain = np.where(np.isfinite(gain) & (lengths > 0), gain, 0.0)
    total = gain.sum(axis=1, keepdims=True)
    return np.asarray(gain / np.where(total > 0, total, 1.0))


@dataclass(frozen=True)
class FedFomo(GossipMethod):
    """Mix in peers' models by what they gain on rows held back."""

    name: ClassVar[str] = "fedfomo"
    about: ClassVar[str] = (
        "Mix in peers' models by their gain on held-back rows, per distance"
    )
    source: ClassVar[str] = "Zhang, Sapra, Fidler, Yeung, Alvarez 2021"

    random: float = setting(
        0.3, "the chance to ask somebody at random in the first round"
    )

    def needs(self) -> Needs:
        why = "Devices there hold back no rows of their own to score others' models by."
        return replace(super().needs(), not_federated=why, one_process=True, told="")

    def rounds_over(
        self, fleet: InProcessFleet, rounds: int, seed: int
    ) -> Iterator[Round]:
        """Each round everybody trains, asks, and moves along what gains."""
        from persfl.fleets.array_fleet import ArrayFleet  # engines take long to load

        learn, judge = rows_apart(all_devices(fleet), seed)
        trains, judges = (
            ArrayFleet(part, learner=fleet.learner, proposer=fleet.proposer, seed=seed)
            for part in (learn, judge)
        )
        n = fleet.n
        local = whole("local", self.local, least=1)
        asked = self.asked(n) if n > 1 else 0
        chance = real("random", self.random, least=0, most=1)
        models = np.repeat(start_of(fleet, seed)[None], n, axis=0)
        sharing = Share(trains, local=local, seed=seed)
        memory = np.zeros((n, n))
        trust = Trust.blank(fleet)
        every = np.arange(n)
        for r in range(rounds):
            trains.models = models
            new = sharing.trained(r)
            # a device with few rows may be too curved for the fleet's step
            rose = ~(own_losses(trains, new) <= own_losses(trains, models))
            new[rose] = models[rose]
            peers = self._peers(memory, asked, chance - LESS * r, r, seed)
            told = judges.scored(new)
            before = own_losses(judges, models)
            who = np.column_stack([every, peers])
            after = np.take_along_axis(told, who, axis=1)
            lengths = distance(models[:, None], new[who])
            share = gain_weights(before, after, lengths)
            none = share.sum(axis=1) == 0
            share[none, 0] = 1.0
            models = models + (share[..., None] * (new[who] - models[:, None])).sum(
                axis=1
            )
            np.add.at(memory, (every[:, None], peers), share[:, 1:])
            hold(fleet, models, r)
            losses = np.column_stack([before, after[:, 1:]])
            choice = Choice(peers, share[:, 1:], share[:, 0])
            trust = trust.updated(peers, losses, lengths[:, 1:], choice)
            yield Round(r, peers, losses, lengths[:, 1:], choice, trust)

    def _peers(
        self, memory: Array, asked: int, chance: float, r: int, seed: int
    ) -> IntArray:
        """Those remembered best, or at random."""
        every = np.arange(len(memory))
        lucky = stream(seed, "random", r).at(every).uniform(1) < chance
        scores = np.where(lucky, 0.0, memory)
        return drawn_first(scores, every, asked, stream(seed, "sample", r))
