"""What methods share in which peers answer with their own models: settings, and means by rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from persfl.checks import whole
from persfl.fleets.share import Share
from persfl.loop import personalize
from persfl.methods.method_fields import setting
from persfl.methods.protocol import Task
from persfl.methods.shared_method import SteppedMethod
from persfl.methods.shared_models import quiet_round, start_of
from persfl.training.state import Keep, State
from persfl.trust import Trust
from persfl.types import Adopter, Array, Choice, IntArray, Mask, Round, Sampler

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet


def pair_notes(trust: Trust, name: str) -> Array:
    """A number for every target and every device from notes of this name, to be changed: 0 before
    the first note.

    >>> pair_notes(Trust(2, np.arange(2)), "seen").tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
    noted = trust.notes.get(name)
    if noted is None:
        return np.zeros((len(trust.targets), trust.n))
    return np.array(noted)


@dataclass(frozen=True, kw_only=True)
class GossipMethod(SteppedMethod):
    """Targets train on own rows, and mix in the models of peers they ask."""

    leaves: ClassVar[str] = (
        "Its own model, to whoever asks. Over a federation where steps on its rows take that, and"
        " its losses of others' models."
    )

    peers: int | str = setting("auto", "peers that a device asks each round; auto: 5")
    local: int = setting(3, "own steps in a round")

    def parts(self, fleet: InProcessFleet, rounds: int) -> tuple[Sampler, Adopter]:
        """Whom to ask, and what to mix in."""
        raise NotImplementedError

    def asked(self, n: int) -> int:
        """How many peers a device asks."""
        if self.peers == "auto":
            return min(5, n - 1)
        return whole("peers", self.peers, least=1, most=n - 1, why=f"{n} devices")

    def run(
        self, task: Task, *, stage: str = "final", keep: Keep | None = None
    ) -> State:
        """Over a federation, whose size a plan need not know, at most everybody is asked."""
        method = self
        if not task.together and self.peers != "auto" and task.n > 1:
            method = replace(self, peers=min(int(self.peers), task.n - 1))
        return SteppedMethod.run(method, task, stage=stage, keep=keep)

    def rounds_over(
        self, fleet: InProcessFleet, rounds: int, seed: int
    ) -> Iterator[Round]:
        """The loop over peers that share their models; one device alone trains alone."""
        local = whole("local", self.local, least=1)
        T = len(fleet.targets)
        fleet.models = np.repeat(start_of(fleet, seed)[None], T, axis=0)
        sharing = Share(fleet, local=local, seed=seed)
        if fleet.n == 1:
            return _alone(sharing, rounds)
        sampler, adopter = self.parts(fleet, rounds)
        return personalize(
            sharing, sampler=sampler, adopter=adopter, rounds=rounds, seed=seed
        )


def _alone(sharing: Share, rounds: int) -> Iterator[Round]:
    trust = Trust.blank(sharing.inner)
    for r in range(rounds):
        sharing.inner.models = sharing.trained(r)
        yield quiet_round(sharing.inner, r, trust)


def mean_with_own(
    peers: IntArray, usable: Mask, targets: IntArray, rows: Array
) -> Choice:
    """The mean of own models and of these peers', weighted by rows.

    >>> rows = np.array([1.0, 1.0, 2.0])
    >>> choice = mean_with_own(
    ...     np.array([[1, 2]]), np.array([[True, True]]), np.array([0]), rows
    ... )
    >>> choice.weights.tolist(), choice.stay.tolist()
    ([[0.25, 0.5]], [0.25])
    """
    weight = np.where(usable, rows[np.maximum(peers, 0)], 0.0)
    total = weight.sum(axis=1) + rows[targets]
    weight = weight / np.where(total > 0, total, 1.0)[:, None]
    return Choice(np.where(usable, peers, -1), weight, 1.0 - weight.sum(axis=1))
