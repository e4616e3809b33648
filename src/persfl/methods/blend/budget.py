"""A stated budget of questions; every question is paid from it.

One question is one answer that one other device computes for one asker. A refit (with one number:
how noisy the rows are about it) costs 1, an answer by gradient steps a quarter. What the fleet is
like is asked once for a whole group of targets: each device asked answers once, and each target
bears its part, answers over targets. That may take half of the budget; where it would take more,
fewer devices are asked, and nobody where not even two could be. The rest is for neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from persfl.seeds import Stream, distinct
from persfl.types import Answers, Choice, Fleet, IntArray

SHORTER = 4  # questions about steps that cost as much as one refit


@dataclass
class Budget:
    """What the targets of a group may ask: `each` so many questions, in the family's unit.

    `unit` is how many of these questions cost as much as one refit.

    >>> purse = Budget(each=2.0, targets=3, copies=1)
    >>> purse.pay(1.0, 6)
    >>> purse.pay(0.25, 1)
    Traceback (most recent call last):
    ...
    RuntimeError: a blend asks no more than its budget. Got 6.25 of 6.
    """

    each: float
    targets: int
    copies: int
    unit: int = 1
    spent: float = 0.0

    def pay(self, cost: float, many: int) -> None:
        """For so many questions that cost this much of a refit."""
        self.spent += cost * self.unit * many
        most = self.each * self.targets
        if self.spent > most * (1 + 1e-9) + 1e-9:
            raise RuntimeError(
                f"a blend asks no more than its budget. Got {self.spent:g} of {most:g}."
            )

    def fleet(self, peers: int, questions: float) -> int:
        """How many of these peers can be asked so many questions about what the fleet is like."""
        return affordable(self.each, self.targets, peers, questions)

    def left(self, peers: int, questions: float) -> float:
        """What is left for each copy of a target when so many peers are asked that."""
        return (self.each - questions * peers / self.targets) / self.copies


def affordable(budget: float, targets: int, peers: int, each: float) -> int:
    """How many of these peers can be asked for what the fleet is like.

    `budget` is that of each of the targets, who share what it costs: `each` questions per peer.

    >>> (
    ...     affordable(640, 6, 40, 14.5),
    ...     affordable(40, 6, 40, 14.5),
    ...     affordable(1, 6, 40, 14.5),
    ... )
    (40, 8, 0)
    """
    many = min(peers, int(budget / 2 * targets / each))
    return many if many >= min(2, peers) else 0


def some_of(peers: int, many: int, place: Stream) -> IntArray:
    """So many of the peers, drawn at this place; in order."""
    if many >= peers:
        return np.arange(peers)
    if not many:
        return np.empty(0, dtype=np.int64)
    return np.sort(
        distinct(place, np.zeros(1, dtype=np.int64), np.array([peers]), many)[0]
    )


class PaidFleet:
    """A fleet whose questions are paid."""

    def __init__(self, fleet: Fleet, budget: Budget) -> None:
        self._fleet = fleet
        self._budget = budget
        self.n = fleet.n
        self.targets = fleet.targets

    @property
    def models(self) -> Any:
        """The targets'."""
        return self._fleet.models

    def observe(self, r: int) -> None:
        """As the fleet."""
        self._fleet.observe(r)

    def probe(self, peers: IntArray, r: int) -> Answers:
        """Pay, and ask."""
        self._budget.pay(1.0 / self._budget.unit, int((peers >= 0).sum()))
        return self._fleet.probe(peers, r)

    def adopt(self, choice: Choice) -> None:
        """As the fleet."""
        self._fleet.adopt(choice)
