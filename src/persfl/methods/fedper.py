"""FedPer: a body that all devices share, and a head that is each device's own.

(body_i, head_i) <- after `local` steps of device i from (body, head_i)
body <- mean over participants of body_i, weighted by their rows;  heads stay where they are

The head is a network's last layer. A linear model has one layer: its head is the level, and its
body the slopes, which makes it "common slopes, own levels"; without a level it has no head.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from persfl.checks import whole
from persfl.errors import InputError
from persfl.learners.linear import Linear
from persfl.learners.network import Network
from persfl.methods.method_fields import setting
from persfl.methods.shared_method import SharedMethod
from persfl.methods.shared_models import (
    all_devices,
    hold,
    mean_by_rows,
    own_columns,
    participants,
    quiet_round,
    start_of,
)
from persfl.seeds import Stream, stream
from persfl.trust import Trust
from persfl.types import Array, IntArray, Learner, Mask, Round

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet


def head_of(learner: Learner, features: int) -> Mask:
    """(size,) which numbers of a model are its head.

    >>> head_of(Linear(intercept=True), 2).tolist()
    [False, False, True]
    """
    if isinstance(learner, Linear):
        head = np.zeros(learner.size(features), dtype=bool)
        head[own_columns(learner, features, slopes=False)] = True
        return head
    if isinstance(learner, Network):
        return network_head(learner)
    raise InputError(
        "a head is the last layer of a network, or the level of a linear model. Got"
        f" {learner!r}."
    )


def network_head(learner: Network) -> Mask:
    """(size,) the parameters of the last layer that has some."""
    moves = learner.moves
    head = np.zeros(moves.size, dtype=bool)
    ends = np.cumsum([int(np.prod(shape)) for shape in learner.shapes.values()])
    begins = np.append(0, ends[:-1])
    layers = [name.rpartition(".")[0] for name in learner.shapes]
    trained = [k for k, begin in enumerate(begins) if moves[begin]]
    for k in trained:
        if layers[k] == layers[trained[-1]]:
            head[begins[k] : ends[k]] = True
    if (head == moves).all():
        raise InputError(f"{learner!r} has one layer: there is no body to share.")
    return head


class Stages:
    """Models of all devices (devices, size): heads are theirs, the body is everybody's."""

    def __init__(self, fleet: InProcessFleet, seed: int) -> None:
        self._fleet = fleet
        self.head = head_of(fleet.learner, all_devices(fleet).features)
        self.models = np.repeat(start_of(fleet, seed)[None], fleet.n, axis=0)

    def stepped(
        self, models: Array, who: IntArray, place: Stream, *, steps: int, part: Mask
    ) -> Array:
        """So many steps of these devices, in which this part of their models moves."""
        for k in range(steps):
            moved = self._fleet.stepped(models, who, place.at(k).at(who))
            models = np.where(part, moved, models)
        return models

    def share(self, models: Array, who: IntArray) -> None:
        """Take participants' heads, and the mean of their bodies for all."""
        body = mean_by_rows(self._fleet, models, who)
        self.models[who] = models
        self.models = np.where(self.head, self.models, body)

    def hand_out(self, r: int) -> None:
        """Give targets their models."""
        hold(self._fleet, self.models[self._fleet.targets], r)


@dataclass(frozen=True)
class FedPer(SharedMethod):
    """One body for everybody, and a head of each device's own."""

    name: ClassVar[str] = "fedper"
    about: ClassVar[str] = "One body for all devices, with a head of each one's own"
    source: ClassVar[str] = "Arivazhagan, Aggarwal, Singh, Choudhary 2019"
    leaves: ClassVar[str] = (
        "Where its steps take the common body, and how many rows it has. Over a federation its"
        " whole model, and its losses."
    )

    local: int = setting(5, "own steps in a round, of body and head together")
    share: float = setting(1.0, "the share of the devices that take part in a round")

    def rounds_over(
        self, fleet: InProcessFleet, rounds: int, seed: int
    ) -> Iterator[Round]:
        """Each round participants step with their heads on, and their bodies are averaged."""
        local = whole("local", self.local, least=1)
        stages = Stages(fleet, seed)
        trust = Trust.blank(fleet)
        everything = np.ones_like(stages.head)
        for r in range(rounds):
            who = participants(fleet, self.share, r, seed)
            place = stream(seed, "answer", r)
            mine = stages.models[who]
            mine = stages.stepped(mine, who, place, steps=local, part=everything)
            stages.share(mine, who)
            stages.hand_out(r)
            yield quiet_round(fleet, r, trust)
