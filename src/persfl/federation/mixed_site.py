"""A mixed model over a federation: the same one exchange of sums as a blend of linear models, and
each target is handed its common and own effects.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from persfl.federation.blend_exchange import BlendScene
from persfl.federation.letters import Letters
from persfl.federation.sums_site import SumsSite, ToldSums
from persfl.methods.blend.mixture import BlendResult
from persfl.methods.mixed.device_sums import DeviceSums, total
from persfl.methods.mixed.near_round import SHARED
from persfl.methods.mixed.reml import MixedFit, fit_of_sums, random_columns, refuse_one
from persfl.types import IntArray, Model


class MixedSite(SumsSite):
    """The devices of a run, for a mixed model with these own effects."""

    def __init__(self, letters: Letters, scene: BlendScene, effects: str) -> None:
        super().__init__(letters, scene)
        self.effects = effects

    def blended(self) -> BlendResult:
        """Every target's model, as it was handed out; None for the others. Whose sums are not
        known has the common effects alone.
        """
        refuse_one(self.n)
        told = self._told()
        found = self._fit(told)
        models = np.repeat(found.common[None], self.n, axis=0)
        models[told.who] = found.models
        handed: Sequence[Model] = self._handed(models)
        nothing = np.zeros((self.n, len(SHARED)))
        return BlendResult(list(handed), SHARED, nothing, ())

    def _fit(self, told: ToldSums) -> MixedFit:
        level = self.family.level
        sums = total(told.parts)
        width = sums.product.shape[1]
        if level:  # ones stand first in sums, and last in models
            sums = _in_order(sums, np.roll(np.arange(width), -1))
        random = random_columns(self.effects, width, level=level)
        if (
            len(told.who) == 1
        ):  # how devices differ cannot be seen: one fit, of its rows
            random = random[:0]
        return fit_of_sums(sums, random, full=self.effects == "full")


def _in_order(sums: DeviceSums, order: IntArray) -> DeviceSums:
    """The same sums with columns in another order."""
    square = sums.square[:, order[:, None], order]
    return sums._replace(square=square, product=sums.product[:, order])
