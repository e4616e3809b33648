"""CoBo: who helps whom is learned from gradients halfway between two models.

For pairs (i, j) that meet in a round, at their midpoint m = (w_i + w_j) / 2:
A_ij <- A_ij + learn * <grad L_i(m), grad L_j(m)> / s,   kept within [0, 1]; it starts at 1
w    <- argmin_v ||v - (w - step_size * grad L(w))||^2 / (2 step_size)
                 + pull / 2 * sum over pairs of A_ij ||v_i - v_j||^2

s is the mean ||grad L_i(m)||^2 of the first round. The authors add 0.01 times the bare product,
which is tied to the scale of gradients, and take the pull at the start of a step, not at its end.
The weights are a graph that is learned: GTVMin with graph="learned" goes by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from persfl.checks import real, whole
from persfl.methods.meetings import MEETINGS, Meetings
from persfl.methods.method_fields import setting
from persfl.methods.shared_method import SteppedMethod
from persfl.methods.shared_models import (
    hold,
    quiet_round,
    start_of,
    step_length,
)
from persfl.seeds import stream
from persfl.trust import Trust
from persfl.types import Round

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet


@dataclass(frozen=True)
class CoBo(SteppedMethod):
    """Own models, pulled together as far as their gradients agree halfway."""

    name: ClassVar[str] = "cobo"
    about: ClassVar[str] = "Own models, pulled along a graph that is learned from steps"
    source: ClassVar[str] = "Hashemi, He, Jaggi 2024"
    told: ClassVar[str] = "how strongly models are pulled together"
    leaves: ClassVar[str] = (
        "Where a step on its rows takes its own model, and one halfway to another device's. Over"
        " a federation also its losses."
    )

    pull: float = setting(0.01, "how strongly each pair is pulled (rho of the paper)")
    learn: float = setting(1.0, "how fast weights of pairs are learned")
    meetings: int = setting(MEETINGS, "others that a device meets in a round")

    def rounds_over(
        self, fleet: InProcessFleet, rounds: int, seed: int
    ) -> Iterator[Round]:
        """Each round devices meet in pairs, step, and are pulled together."""
        pull = real("pull", self.pull, least=0)
        learn = real("learn", self.learn, above=0)
        times = whole("meetings", self.meetings, least=1)
        step = step_length(fleet, "CoBo")
        trust = Trust.blank(fleet)
        who = fleet.targets
        n = len(who)
        own = np.repeat(start_of(fleet, seed)[None], n, axis=0)
        meetings = Meetings(fleet, learn, seed)
        for r in range(rounds):
            meetings.meet(own, r, times)
            # by name: a step that goes far would take others along, and is left out
            moved = fleet.stepped(own, who, stream(seed, "own", r).at(who))
            known = meetings.weights
            tied = np.diag(known.sum(axis=1)) - known
            held = np.eye(n) + step * pull * tied
            own = np.asarray(np.linalg.solve(held, moved), dtype=moved.dtype)
            hold(fleet, own, r)
            yield quiet_round(fleet, r, trust)
