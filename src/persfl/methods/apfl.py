"""APFL: a mix of an own model and the common one, with a share that every device learns.

m_i = a_i v_i + (1 - a_i) w                   the model of device i
w   <- mean over participants of (their steps from w), weighted by their rows
v_i <- v_i - step_size * a_i * grad L_i(m_i)
a_i <- a_i - step_size * ( <v_i - w, grad L_i(m_i)> + 0.02 a_i ),  cut to 0.02..1
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from persfl.checks import real
from persfl.methods.method_fields import setting
from persfl.methods.shared_method import SharedMethod
from persfl.methods.shared_models import (
    hold,
    mean_of_steps,
    participants,
    quiet_round,
    slopes,
    start_of,
    step_length,
)
from persfl.seeds import stream
from persfl.trust import Trust
from persfl.types import Round

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet

SHRINK = 0.02  # of a device's share, as the authors' code has it
LEAST = 0.02  # with a share of 0 an own model would stand still, and no share come back


def apfl(
    fleet: InProcessFleet,
    *,
    own: float,
    learn: bool,
    rounds: int,
    share: float = 0.2,
    seed: int = 0,
) -> Iterator[Round]:
    """Each round every target steps on its rows from its mix; some also from the common model."""
    trust = Trust.blank(fleet)
    step = step_length(fleet, "APFL")
    model = start_of(fleet, seed)
    mine = np.repeat(model[None], len(fleet.targets), axis=0)
    part = np.full((len(fleet.targets), 1), own)
    for r in range(rounds):
        mixed = part * mine + (1.0 - part) * model
        place = stream(seed, "own", r).at(fleet.targets)
        slope = slopes(fleet, mixed, None, place)
        along = ((mine - model) * slope).sum(axis=1, keepdims=True)
        mine = mine - step * part * slope
        if learn:
            part = np.clip(part - step * (along + SHRINK * part), LEAST, 1.0)
        who = participants(fleet, share, r, seed)
        model = mean_of_steps(fleet, model, who, stream(seed, "answer", r))
        hold(fleet, part * mine + (1.0 - part) * model, r)
        yield quiet_round(fleet, r, trust)


@dataclass(frozen=True)
class APFL(SharedMethod):
    """Every device mixes a model of its own with the common one."""

    name: ClassVar[str] = "apfl"
    about: ClassVar[str] = (
        "Mixes of an own model and the common one, with learned shares"
    )
    source: ClassVar[str] = "Deng, Kamani, Mahdavi 2020"
    leaves: ClassVar[str] = (
        "Where a step on its rows takes the common model, and how many rows it has. Over a"
        " federation also its losses, and where a step takes its own model."
    )

    own: float = setting(0.5, "the share of the own model to begin with")
    learn: bool = setting(True, "whether devices learn their shares")

    def rounds_over(
        self, fleet: InProcessFleet, rounds: int, seed: int
    ) -> Iterator[Round]:
        return apfl(
            fleet,
            own=real("own", self.own, least=0, most=1),
            learn=self.learn,
            rounds=rounds,
            share=self.share,
            seed=seed,
        )
