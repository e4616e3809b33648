"""MR-MTL: own models, pulled toward their mean (mean-regularized multi-task learning).

    min  sum_i L_i(w_i) + pull / 2 * sum_i ||w_i - mean of all w||^2

w_i <- w_i - step_size * grad L_i(w_i), then pulled toward the mean of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from persfl.checks import real
from persfl.methods.method_fields import setting
from persfl.methods.shared_method import SteppedMethod
from persfl.methods.shared_models import hold, quiet_round, start_of, step_length
from persfl.seeds import stream
from persfl.trust import Trust
from persfl.types import Round

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet


@dataclass(frozen=True)
class MRMTL(SteppedMethod):
    """Own models, pulled toward the mean of all own models."""

    name: ClassVar[str] = "mr-mtl"
    about: ClassVar[str] = "Own models, pulled toward the mean of all of them"
    source: ClassVar[str] = "Evgeniou, Pontil 2004; Liu, Hu, Wu, Smith 2022"
    told: ClassVar[str] = "how strongly own models are pulled toward their mean"
    leaves: ClassVar[str] = (
        "Where a step on its rows takes its model. Over a federation also its losses."
    )

    pull: float = setting(1.0, "how strongly; 0 is every device alone")

    def rounds_over(
        self, fleet: InProcessFleet, rounds: int, seed: int
    ) -> Iterator[Round]:
        """Each round every target steps on its rows and is pulled."""
        strength = real("pull", self.pull, least=0) * step_length(fleet, "MR-MTL")
        trust = Trust.blank(fleet)
        who = fleet.targets
        own = np.repeat(start_of(fleet, seed)[None], len(who), axis=0)
        for r in range(rounds):
            # by name: a step that goes far would take the mean along, and is left out
            moved = fleet.stepped(own, who, stream(seed, "own", r).at(who))
            middle = moved.mean(axis=0)
            own = middle + (moved - middle) / (1.0 + strength)
            hold(fleet, own, r)
            yield quiet_round(fleet, r, trust)
