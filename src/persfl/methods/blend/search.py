"""The search for neighbours: the ordinary loop, in which every copy of a target is a target and
the other groups are its peers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from persfl.loop import personalize
from persfl.methods.blend.site import Part
from persfl.types import Answers, Array, Choice, IntArray, Proposer, Round


class Asked(NamedTuple):
    """The rounds in which neighbours were asked, and the models they led to, one per copy.

    `missing` are the starts that the budget could not pay: what stands in for them is not offered.
    """

    models: Any
    rounds: list[Round]
    missing: frozenset[str] = frozenset()


class Search:
    """A fleet made of the questions of a `Part`: peers are devices 0 to `peers` - 1, the copies
    stand behind them.
    """

    def __init__(self, part: Part, proposer: Proposer, start: Array) -> None:
        self.part, self.proposer = part, proposer
        self.models: Any = np.array(start)
        self.n = part.peers + len(start)
        self.targets: IntArray = np.arange(part.peers, self.n)
        self._peers, self._answers = (
            np.empty((len(start), 0), dtype=np.int64),
            np.empty((len(start), 0, start.shape[1])),
        )

    def observe(self, r: int) -> None:
        """Rows stay as they are."""

    def probe(self, peers: IntArray, r: int) -> Answers:
        """Ask every peer, have every answer scored by its copy's rows."""
        many, size = peers.shape[1], self.models.shape[1]
        whose = np.repeat(np.arange(len(peers)), many)
        found = np.empty((0, size))
        if many:  # a round of asking nobody is no exchange
            found = self.part.answers(
                self.proposer, peers.ravel(), self.models[whose], whose
            )
        self._peers, self._answers = peers, found.reshape(len(peers), many, size)
        losses = self.part.losses(
            np.concatenate([self.models[:, None], self._answers], axis=1)
        )
        return Answers(losses, np.full(peers.shape, np.nan))

    def adopt(self, choice: Choice) -> None:
        """Mix what was chosen."""
        if not choice.peers.shape[1]:
            return
        at = (choice.peers[:, :, None] == self._peers[:, None, :]).argmax(axis=2)
        taken = np.take_along_axis(self._answers, at[:, :, None], axis=1)
        parts = np.where(
            choice.weights[..., None] > 0, choice.weights[..., None] * taken, 0.0
        ).sum(axis=1)
        self.models = choice.stay[:, None] * self.models + parts


def neighbours(
    part: Part, proposer: Proposer, rule: Any, start: Array, rounds: int
) -> Asked:
    """What asking neighbours from these models leads to."""
    fleet = Search(part, proposer, start)
    done = list(
        personalize(
            fleet, sampler=rule.sampler, adopter=rule, rounds=rounds, seed=part.seed
        )
    )
    return Asked(fleet.models, done)


def unpaid(missing: dict[str, bool]) -> frozenset[str]:
    """The names of those that are missing."""
    return frozenset(name for name, gone in missing.items() if gone)
