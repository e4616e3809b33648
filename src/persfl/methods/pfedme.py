"""pFedMe: own models near a common one, which follows them (Moreau envelopes).

t_i = argmin L_i(t) + pull / 2 * ||t - w_i||^2      by `steps` steps
w_i <- w_i - rate * pull * (w_i - t_i),             `local` times from w_i = w
w   <- (1 - follow) w + follow * mean over participants of w_i, weighted by their rows

The model of device i is its t_i at w. `pull` is lambda, `rate` eta and `follow` beta of the paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from persfl.checks import real, whole
from persfl.errors import InputError
from persfl.methods.fedprox import near_steps
from persfl.methods.method_fields import setting
from persfl.methods.shared_method import SharedMethod
from persfl.methods.shared_models import (
    hold,
    mean_by_rows,
    participants,
    quiet_round,
    start_of,
)
from persfl.seeds import stream
from persfl.trust import Trust
from persfl.types import Round

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet


@dataclass(frozen=True)
class PFedMe(SharedMethod):
    """Own models that stay near a common one, which follows them."""

    name: ClassVar[str] = "pfedme"
    about: ClassVar[str] = "Own models that stay near a common one, which follows them"
    source: ClassVar[str] = "Dinh, Tran, Nguyen 2020"
    told: ClassVar[str] = "how strongly own models are pulled toward the common one"
    leaves: ClassVar[str] = (
        "Where the common model goes after its own steps, and how many rows it has. Over a"
        " federation where each of those steps leads, and its losses."
    )

    pull: float = setting(15.0, "how strongly (lambda of the paper: 15 to 20)")
    steps: int = setting(5, "steps to an own model")
    local: int = setting(
        20, "times that a participant follows its own model in a round"
    )
    rate: float = setting(0.005, "how far it does so, times pull")
    follow: float = setting(1.0, "how far the common model follows the participants")

    def rounds_over(
        self, fleet: InProcessFleet, rounds: int, seed: int
    ) -> Iterator[Round]:
        """Each round participants pull the common model, and all targets step from it."""
        pull = real("pull", self.pull, above=0)
        steps = whole("steps", self.steps, least=1)
        local = whole("local", self.local, least=1)
        follow = real("follow", self.follow, above=0)
        far = real("rate", self.rate, above=0) * pull
        if far > 1:
            raise InputError(
                f"rate * pull must be at most 1, or the common model overshoots. Got"
                f" {self.rate:g} * {pull:g}."
            )
        trust = Trust.blank(fleet)
        model = start_of(fleet, seed)
        for r in range(rounds):
            who = participants(fleet, self.share, r, seed)
            common = np.repeat(model[None], len(who), axis=0)
            for k in range(local):
                place = stream(seed, "answer", r, k)
                own = near_steps(
                    fleet, common, common, who, place, pull=pull, local=steps
                )
                common = common - far * (common - own)
            model = (1.0 - follow) * model + follow * mean_by_rows(fleet, common, who)
            start = np.repeat(model[None], len(fleet.targets), axis=0)
            place = stream(seed, "own", r)
            hold(
                fleet,
                near_steps(fleet, start, start, None, place, pull=pull, local=steps),
                r,
            )
            yield quiet_round(fleet, r, trust)
