"""What a route hands back: every candidate's models, and what happened while asking neighbours."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from persfl.devices import Devices
from persfl.fleets import ArrayFleet
from persfl.loop import personalize
from persfl.types import Array, Round


class Asked(NamedTuple):
    """The rounds in which neighbours were asked, and the models they led to (targets, size)."""

    models: Array
    rounds: list[Round]


@dataclass(frozen=True, eq=False)
class Part:
    """One view of one group of devices: what the rest of the fleet can offer them.

    `others` are devices of other groups, `own` the group's own in copies: with all rows, then without each fold.
    """

    learner: Any
    others: Devices
    own: Devices
    seed: int
    asks: int  # questions per copy that neighbours are asked
    offered: dict[tuple[str, float], Array] = field(default_factory=dict)  # (kind, how far refitted): (copies, size)

    def neighbours(self, proposer: Any, rule: Any, start: Array, rounds: int) -> Asked:
        """The ordinary loop: every copy is a target, the other groups' devices are its peers."""
        everybody = Devices.joined([self.others, self.own])
        m = len(self.others)
        targets = list(range(m, len(everybody)))
        fleet = ArrayFleet(everybody, learner=self.learner, proposer=proposer, targets=targets, start=list(start), seed=self.seed)
        done = list(personalize(fleet, sampler=rule.sampler, adopter=rule, rounds=rounds, seed=self.seed))
        return Asked(np.asarray(fleet.models), done)
