"""Per-FedAvg: one start for everybody, from which one step on own rows leads to a good model.

u_i = w - inner * grad L_i(w)
w   <- w - step_size * mean over participants of (I - inner * H_i(w)) grad L_i(u_i)
v_i = w - inner * grad L_i(w)      what device i has in the end

The Hessian times a vector is a difference of two gradients (HF of the paper), or left out (FO).
Means are weighted by rows. The authors draw other rows for each gradient; here all rows are used.
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
    mean_by_rows,
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

NEAR = 1e-3  # how far apart the two gradients are that make a Hessian times a vector


def per_fedavg(
    fleet: InProcessFleet,
    *,
    inner: float,
    hessian: bool,
    rounds: int,
    share: float = 0.2,
    seed: int = 0,
) -> Iterator[Round]:
    """Each round a share of the devices say where the start should go; all then step once."""
    trust = Trust.blank(fleet)
    step = step_length(fleet, "Per-FedAvg")
    model = start_of(fleet, seed)
    for r in range(rounds):
        who = participants(fleet, share, r, seed)
        place = stream(seed, "answer", r)
        common = np.repeat(model[None], len(who), axis=0)
        first = slopes(fleet, common, who, place.at("first").at(who))
        there = common - inner * first
        slope = slopes(fleet, there, who, place.at("second").at(who))
        if hessian:
            length = np.sqrt((slope**2).sum(axis=1, keepdims=True))
            near = NEAR / np.maximum(length, NEAR)
            up = slopes(fleet, common + near * slope, who, place.at("up").at(who))
            down = slopes(fleet, common - near * slope, who, place.at("down").at(who))
            slope = slope - inner * (up - down) / (2.0 * near)
        model = mean_by_rows(fleet, common - step * slope, who)
        everybody = np.repeat(model[None], len(fleet.targets), axis=0)
        own = stream(seed, "own", r).at(fleet.targets)
        hold(fleet, everybody - inner * slopes(fleet, everybody, None, own), r)
        yield quiet_round(fleet, r, trust)


@dataclass(frozen=True)
class PerFedAvg(SharedMethod):
    """A common start, from which every device takes one step on its rows."""

    name: ClassVar[str] = "per-fedavg"
    about: ClassVar[str] = (
        "A common start from which one own step leads to a good model"
    )
    source: ClassVar[str] = "Fallah, Mokhtari, Ozdaglar 2020"
    leaves: ClassVar[str] = (
        "Gradients of its loss at the common model and after a step, and how many rows it has."
        " Over a federation also its losses."
    )

    inner: float | str = setting("auto", "how long the own step is; auto: as step_size")
    hessian: bool = setting(
        False, "whether the Hessian counts (HF); else it does not (FO)"
    )

    def rounds_over(
        self, fleet: InProcessFleet, rounds: int, seed: int
    ) -> Iterator[Round]:
        step = step_length(fleet, "Per-FedAvg")
        inner = step if self.inner == "auto" else real("inner", self.inner, above=0)
        return per_fedavg(
            fleet,
            inner=inner,
            hessian=self.hessian,
            rounds=rounds,
            share=self.share,
            seed=seed,
        )
