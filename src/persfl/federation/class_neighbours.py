"""Neighbours of a blend of classes over a federation: rounds in which every device is sent the
models of its likeliest centres, and answers which are likeliest and what its rows make of their
mean (see `persfl.methods.mixed.class_near`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from persfl.federation.blend_exchange import Letter
from persfl.methods.blend.class_questions import ClassFree, ClassNear
from persfl.methods.mixed.class_near import CENTRES, ROUNDS
from persfl.methods.mixed.panel_draw import some_centres
from persfl.types import Array, IntArray

if TYPE_CHECKING:
    from persfl.federation.class_site import ClassSite


class ClassFleet(NamedTuple):
    """The fleet's model (copies, columns, classes), and the variance of its slopes."""

    model: Array
    slopes: float


class NearModels(NamedTuple):
    """`mean` (copies, n, columns, classes) of everybody's likeliest centres; `models` of the
    devices `who`, who may be centres, by all rows.
    """

    mean: Array
    who: IntArray
    models: Array


def near_models(site: ClassSite, fleet: ClassFleet) -> NearModels:
    """Rounds of likeliest centres and models; who tells no models is nobody's centre."""
    rounds = _Rounds(site, fleet)
    for _ in range(ROUNDS):
        rounds.next()
    who = np.array(rounds.centres(), dtype=np.int64)
    last = [rounds.models[i][0] for i in who.tolist()]
    return NearModels(
        rounds.mean, who, np.array(last).reshape(-1, *fleet.model.shape[1:])
    )


class _Rounds:
    """Models (copies, columns, classes) of each device, its likeliest centres (copies, some), and
    everybody's mean.
    """

    def __init__(self, site: ClassSite, fleet: ClassFleet) -> None:
        self.site = site
        self.fleet = fleet
        self.some = some_centres(site.n, site.seed, CENTRES).tolist()
        self.mean = np.repeat(fleet.model[:, None], site.n, axis=1)
        self.likely: dict[int, IntArray] = {}
        self.models: dict[int, Array] = {}
        flat = fleet.model.reshape(site.copies, -1)
        free = ClassFree(ordered=site.ordered, slopes=fleet.slopes, fleet=flat)
        number = site.exchanges
        for i, told in enumerate(site.ask([Letter(i, free) for i in range(site.n)])):
            found = site.family.read_models(told.get("models"), site.copies)
            if found is not None:
                self.models[i] = found
            else:
                site.doubted(i, told, number)

    def centres(self) -> list[int]:
        """Who may be one."""
        return [i for i in self.some if i in self.models]

    def next(self) -> None:
        """All at once; who does not answer keeps what it has."""
        models = self.models
        asked = {i: self._asked(i) for i in sorted(models)}
        letters = [
            Letter(i, self._question(each)) for i, each in asked.items() if each.size
        ]
        if not letters:
            return
        found = dict(models)
        family = self.site.family
        number = self.site.exchanges
        for letter, told in zip(letters, self.site.ask(letters), strict=True):
            i = letter.to
            picked = family.read_picked(told, *asked[i].shape)
            new = family.read_models(told.get("models"), self.site.copies)
            if picked is None or new is None:
                self.site.doubted(i, told, number)
                continue
            places, share = picked
            self.likely[i] = np.take_along_axis(asked[i], places, axis=1)
            for k, row in enumerate(self.likely[i].tolist()):
                near = np.stack([models[j][k] for j in row])
                self.mean[k, i] = np.einsum("j,jdk->dk", share[k], near)
            found[i] = new
        self.models = found

    def _asked(self, i: int) -> IntArray:
        """(copies, many) the centres that a device is sent: all others, then its likeliest."""
        if i in self.likely:
            return self.likely[i]
        others = np.array([j for j in self.centres() if j != i], dtype=np.int64)
        return np.repeat(others[None], self.site.copies, axis=0)

    def _question(self, asked: IntArray) -> ClassNear:
        models = self.models
        shown = [[models[j][k].ravel() for j in row] for k, row in enumerate(asked)]
        return ClassNear(
            ordered=self.site.ordered,
            slopes=self.fleet.slopes,
            many=asked.shape[1],
            centres=np.array(shown),
        )
