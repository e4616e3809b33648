"""FedProx: federated averaging of several own steps, which are pulled back to where they began.

w_i <- argmin_v  ||v - (w_i - step_size * grad L_i(w_i))||^2 / (2 step_size)
                 + pull / 2 * ||v - w||^2,   `local` times from w_i = w
w   <- mean over participants of w_i, weighted by their rows

`pull` is FedProx's mu. With 0 and one own step it is federated averaging.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from persfl.checks import real, whole
from persfl.methods.method_fields import setting
from persfl.methods.shared_method import SharedMethod
from persfl.methods.shared_models import (
    hold,
    mean_by_rows,
    participants,
    quiet_round,
    start_of,
    step_length,
)
from persfl.seeds import Stream, stream
from persfl.trust import Trust
from persfl.types import Array, IntArray, Round

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet


def near_steps(
    fleet: InProcessFleet,
    models: Array,
    anchor: Array,
    who: IntArray | None,
    place: Stream,
    *,
    pull: float,
    local: int,
) -> Array:
    """(D, size) `local` steps of each device from `models`, each then pulled toward `anchor`.

    The pull is taken at the end of a step (backward), so no step is too long for it.
    """
    asked = fleet.targets if who is None else who
    strength = step_length(fleet, "a pulled step") * pull
    for k in range(local):
        moved = fleet.stepped(models, who, place.at(k).at(asked))
        models = (moved + strength * anchor) / (1.0 + strength)
    return models


def fedprox(
    fleet: InProcessFleet,
    *,
    pull: float,
    local: int,
    rounds: int,
    share: float = 0.2,
    seed: int = 0,
) -> Iterator[Round]:
    """Each round a share of the devices take `local` steps, held near the common model."""
    trust = Trust.blank(fleet)
    model = start_of(fleet, seed)
    for r in range(rounds):
        who = participants(fleet, share, r, seed)
        place = stream(seed, "answer", r)
        common = np.repeat(model[None], len(who), axis=0)
        moved = near_steps(fleet, common, common, who, place, pull=pull, local=local)
        model = mean_by_rows(fleet, moved, who)
        hold(fleet, np.repeat(model[None], len(fleet.targets), axis=0), r)
        yield quiet_round(fleet, r, trust)


@dataclass(frozen=True)
class FedProx(SharedMethod):
    """One model for everybody, from several own steps that stay near it."""

    name: ClassVar[str] = "fedprox"
    about: ClassVar[str] = "One model for everybody, from own steps that stay near it"
    source: ClassVar[str] = "Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith 2020"
    told: ClassVar[str] = "how strongly own steps are pulled back to the common model"
    leaves: ClassVar[str] = (
        "Where own steps take the common model, and how many rows it has. Over a federation where"
        " each of those steps leads, and its losses."
    )

    pull: float = setting(0.1, "how strongly (mu of the paper: 0.001 to 1)")
    local: int = setting(5, "own steps in a round")

    def rounds_over(
        self, fleet: InProcessFleet, rounds: int, seed: int
    ) -> Iterator[Round]:
        return fedprox(
            fleet,
            pull=real("pull", self.pull, least=0),
            local=whole("local", self.local, least=1),
            rounds=rounds,
            share=self.share,
            seed=seed,
        )
