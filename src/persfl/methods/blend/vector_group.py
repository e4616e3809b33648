"""A group of targets and their peers whose rows are here, for models that are not linear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from persfl.devices import Devices
from persfl.fleets import ArrayFleet
from persfl.loop import personalize
from persfl.methods.blend.search import Asked
from persfl.types import Proposer


@dataclass(frozen=True, eq=False)
class Part:
    """One view of one group of devices: what the rest of the fleet can offer them.

    `others` are devices of other groups, `own` the group's own in copies: with all rows, then
    without each fold.
    """

    learner: Any
    others: Devices
    own: Devices
    seed: int
    budget: float  # questions that each target may ask, all in all
    copies: int = 1  # of each target
    n_jobs: int | None = 1

    @property
    def targets(self) -> int:
        """How many devices the group has."""
        return len(self.own) // self.copies

    def neighbours(
        self, proposer: Proposer, rule: Any, start: Any, rounds: int
    ) -> Asked:
        """The ordinary loop: every copy is a target, the other groups' devices are its peers."""
        everybody = Devices.joined([self.others, self.own])
        m = len(self.others)
        targets = list(range(m, len(everybody)))
        fleet = ArrayFleet(
            everybody,
            learner=self.learner,
            proposer=proposer,
            targets=targets,
            start=list(start),
            seed=self.seed,
            n_jobs=self.n_jobs,
        )
        done = list(
            personalize(
                fleet, sampler=rule.sampler, adopter=rule, rounds=rounds, seed=self.seed
            )
        )
        return Asked(fleet.models, done)
