"""Werner's federated clustering: every device steps along a mean of near gradients, thresholded.

g_j = grad L_j(w_i), of everybody at *my* model;  v = g_i
v   <- mean over j of ( g_j if ||g_j - v|| <= t else v ),  `passes` times
w_i <- w_i - step_size * v

t is 0.99 times a quantile of the distances ||g_j - v||, or the middle between the second and the
third of three groups of them (k-means).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from persfl.checks import real, whole
from persfl.methods.meetings import asked_in_turn, in_turn
from persfl.methods.method_fields import setting
from persfl.methods.shared_method import SteppedMethod
from persfl.methods.shared_models import (
    hold,
    quiet_round,
    slopes,
    start_of,
    step_length,
)
from persfl.seeds import stream
from persfl.trust import Trust
from persfl.types import Array, Round

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet

GROUPS_PASSES = 20  # of k-means on a line


def thresholds(distances: Array, quantile: float | str) -> Array:
    """(targets,) how far a gradient may be, from distances (targets, peers).

    >>> thresholds(np.array([[0.0, 1.0, 1.2, 9.0]]), "groups").round(2).tolist()
    [5.05]
    """
    if quantile != "groups":
        return np.asarray(0.99 * np.quantile(distances, float(quantile), axis=1))
    centres = np.quantile(distances, [0.0, 0.5, 1.0], axis=1).T
    for _ in range(GROUPS_PASSES):
        group = np.abs(distances[:, :, None] - centres[:, None]).argmin(axis=2)
        for k in range(3):
            mine = group == k
            count = mine.sum(axis=1)
            mean = (distances * mine).sum(axis=1) / np.maximum(count, 1)
            centres[:, k] = np.where(count > 0, mean, centres[:, k])
    return np.asarray(centres[:, 1:].mean(axis=1))


def near_mean(own: Array, others: Array, quantile: float | str, passes: int) -> Array:
    """(targets, size) the thresholded mean of own (targets, size) and others' gradients."""
    everybody = np.concatenate([own[:, None], others], axis=1)
    v = own
    for _ in range(passes):
        apart = np.sqrt(((everybody - v[:, None]) ** 2).sum(axis=2))
        near = apart <= thresholds(apart, quantile)[:, None]
        v = np.where(near[:, :, None], everybody, v[:, None]).mean(axis=1)
    return v


@dataclass(frozen=True)
class Werner(SteppedMethod):
    """Every device steps along the mean of gradients that are near its own."""

    name: ClassVar[str] = "werner"
    about: ClassVar[str] = (
        "Steps along the mean of those gradients that are near one's own"
    )
    source: ClassVar[str] = "Werner, He, Karimireddy, Jordan, Jaggi 2023"
    told: ClassVar[str] = "which share of the gradients counts as near, or nothing"
    leaves: ClassVar[str] = (
        "Its model to those it asks; where a step on its rows takes the model of whoever asks."
        " Over a federation also its losses."
    )

    quantile: float | str = setting(0.2, "which share is near; groups: by k-means")
    passes: int = setting(3, "times that the mean is taken")
    peers: int | str = setting(
        "auto", "gradients a device asks for in a round; auto: 20"
    )

    def rounds_over(
        self, fleet: InProcessFleet, rounds: int, seed: int
    ) -> Iterator[Round]:
        """Each round every target asks some peers for gradients at its model."""
        quantile = self.quantile
        if quantile != "groups":
            real("quantile", quantile, above=0, most=1)
        passes = whole("passes", self.passes, least=1)
        step = step_length(fleet, "Werner's clustering")
        trust = Trust.blank(fleet)
        who = fleet.targets
        own = np.repeat(start_of(fleet, seed)[None], len(who), axis=0)
        asked = asked_in_turn(self.peers, fleet.n)
        for r in range(rounds):
            mine = slopes(fleet, own, who, stream(seed, "own", r).at(who))
            peers = in_turn(fleet.n, who, asked, stream(seed, "sample", r))
            found = []
            for k, them in enumerate(peers):
                place = stream(seed, "answer", r, k).at(who)
                found.append(slopes(fleet, own, them, place))
            told = np.stack(found, axis=1) if found else mine[:, None][:, :0]
            own = own - step * near_mean(mine, told, quantile, passes)
            hold(fleet, own, r)
            yield quiet_round(fleet, r, trust)
