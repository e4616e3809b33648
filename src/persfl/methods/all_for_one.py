"""All-for-one: every device steps along the gradients of those that are near its own.

g_j = grad L_j(w_i), of everybody asked, at *my* model
a_j = max(0, 1 - ||g_i - g_j||^2 / ||g_i||^2)       "continuous"
      rows of j where that is above 0, else 0       "binary"
w_i <- w_i - step_size * sum of a_j g_j / sum of a_j,      j = i among them

No threshold and no memory: a device stops listening as soon as others' gradients are further from
its own than the origin is. So others lead it there sooner, and where a step takes all of its rows
it ends where own steps alone would: fewer rounds are nearer to others. The authors' code divides a
norm by a squared norm and counts rows of test sets; this is the ratio of their paper, and rows that
are learned from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from persfl.checks import one_of
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

FORMS = ("binary", "continuous")


def near_weights(own: Array, others: Array, rows: Array, form: str) -> Array:
    """(targets, peers + 1) weights that sum to 1, of own (targets, size) and others' gradients;
    `rows` (targets, peers + 1), own ones first.

    >>> others = np.array([[[1.0, 0.5], [-1.0, 0.0]]])
    >>> near_weights(np.array([[1.0, 0.0]]), others, np.ones((1, 3)), "binary").tolist()
    [[0.5, 0.5, 0.0]]
    """
    size = (own**2).sum(axis=1)[:, None]
    apart = ((own[:, None] - others) ** 2).sum(axis=2)
    near = np.maximum(0.0, 1.0 - apart / np.maximum(size, 1e-300))
    near = np.column_stack([np.ones(len(own)), near])
    if form == "binary":
        near = np.where(near > 0, rows, 0.0)
    total = near.sum(axis=1, keepdims=True)
    alone = np.arange(near.shape[1]) == 0
    return np.where(total > 0, near / np.where(total > 0, total, 1.0), alone)


@dataclass(frozen=True)
class AllForOne(SteppedMethod):
    """Every device steps along gradients that are nearer to its own than the origin is."""

    name: ClassVar[str] = "all-for-one"
    about: ClassVar[str] = "Steps along gradients that are near one's own, told nothing"
    source: ClassVar[str] = (
        "Philippenko, Le Bars, Scaman, Massoulie 2025; Even, Massoulie, Scaman 2022"
    )
    leaves: ClassVar[str] = (
        "Its model to those it asks; where a step on its rows takes the model of whoever asks."
        " Over a federation also its losses."
    )

    form: str = setting("binary", "binary: near ones count by rows; continuous: by how")
    peers: int | str = setting(
        "auto", "gradients a device asks for in a round; auto: 20"
    )

    def rounds_over(
        self, fleet: InProcessFleet, rounds: int, seed: int
    ) -> Iterator[Round]:
        """Each round every target asks some peers for gradients at its model."""
        form = one_of("form", self.form, FORMS)
        step = step_length(fleet, "All-for-one")
        n = fleet.n
        asked = asked_in_turn(self.peers, n)
        trust = Trust.blank(fleet)
        who = fleet.targets
        own = np.repeat(start_of(fleet, seed)[None], len(who), axis=0)
        for r in range(rounds):
            mine = slopes(fleet, own, who, stream(seed, "own", r).at(who))
            peers = in_turn(n, who, asked, stream(seed, "sample", r))
            found = [mine]
            for k, them in enumerate(peers):
                place = stream(seed, "answer", r, k).at(who)
                found.append(slopes(fleet, own, them, place))
            told = np.stack(found, axis=1)
            rows = fleet.home.static.total[np.column_stack([who, peers.T])]
            share = near_weights(mine, told[:, 1:], rows, form)
            own = own - step * (share[..., None] * told).sum(axis=1)
            hold(fleet, own, r)
            yield quiet_round(fleet, r, trust)
