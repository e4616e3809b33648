"""MOCHA: own models, and a covariance between devices that is learned with them.

    min over W and Omega of  sum_i L_i(w_i) + pull * tr(W Omega W'),   Omega = 1 / Sigma

Sigma (devices, devices) = (W'W)^(1/2) / its trace. Own steps alternate with the proximal map of the
penalty, W <- W Sigma (Sigma + 2 step_size pull I)^-1, which needs no inverse of Sigma: W'W of
more devices than coefficients has none. (Its authors ascend the dual.)
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
from persfl.types import Array, Round

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet

EVERY = 10  # rounds after which Sigma is learned anew
APART = 0.05  # the share of Sigma that keeps devices apart, as in the first rounds


def relation(models: Array) -> Array:
    """(devices, devices) Sigma of models (devices, size): of trace 1, and never singular.

    >>> relation(np.array([[1.0, 0.0], [2.0, 0.0]])).round(2).tolist()
    [[0.21, 0.38], [0.38, 0.78]]
    """
    n = len(models)
    U, size, _ = np.linalg.svd(models, full_matrices=False)
    apart = np.eye(n) / n
    if not size.sum() > 0:
        return apart
    learned = (U * size) @ U.T / size.sum()
    return np.asarray((1.0 - APART) * learned + APART * apart)


@dataclass(frozen=True)
class Mocha(SteppedMethod):
    """Own models, tied by a learned covariance between devices."""

    name: ClassVar[str] = "mocha"
    about: ClassVar[str] = "Own models, tied by a learned covariance between devices"
    source: ClassVar[str] = "Smith, Chiang, Sanjabi, Talwalkar 2017"
    told: ClassVar[str] = "how strongly devices are tied"
    leaves: ClassVar[str] = (
        "Where a step on its rows takes its model. Over a federation also its losses."
    )

    pull: float = setting(0.003, "how strongly; 0 is every device alone")

    def rounds_over(
        self, fleet: InProcessFleet, rounds: int, seed: int
    ) -> Iterator[Round]:
        """Each round every target steps on its rows; now and then Sigma is learned anew."""
        pull = real("pull", self.pull, least=0)
        strength = 2.0 * pull * step_length(fleet, "MOCHA")
        trust = Trust.blank(fleet)
        who = fleet.targets
        n = len(who)
        own = np.repeat(start_of(fleet, seed)[None], n, axis=0)
        Sigma = np.eye(n) / n
        for r in range(rounds):
            if r and r % EVERY == 0:
                Sigma = relation(own)
            # by name: a step that goes far would take others along, and is left out
            moved = fleet.stepped(own, who, stream(seed, "own", r).at(who))
            own = Sigma @ np.linalg.solve(Sigma + strength * np.eye(n), moved)
            hold(fleet, own, r)
            yield quiet_round(fleet, r, trust)
