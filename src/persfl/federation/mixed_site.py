"""A mixed model over a federation: the same one exchange of sums as a blend of linear models, and
each target is handed its common and own effects.

Devices whose owners allow no sums are asked for refits, one exchange for every look at the
likelihood; the models are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from persfl.checks import those
from persfl.errors import InputError
from persfl.federation.blend_exchange import BlendScene
from persfl.federation.drawn_rows import DrawnRows, Fewer, those_who_draw
from persfl.federation.letters import Letters, capital
from persfl.federation.sums_site import SumsSite
from persfl.methods.blend.mixture import BlendResult
from persfl.methods.mixed.device_sums import DeviceSums, total
from persfl.methods.mixed.near_round import SHARED
from persfl.methods.mixed.reml import (
    MixedFit,
    RestrictedLikelihood,
    fit_of_sums,
    likeliest_fit,
    random_columns,
    refuse_one,
)
from persfl.types import IntArray, Model


class MixedSite(SumsSite):
    """The devices of a run, for a mixed model with these own effects."""

    def __init__(self, letters: Letters, scene: BlendScene, effects: str) -> None:
        super().__init__(letters, scene)
        self.effects = effects

    def blended(self) -> BlendResult:
        """Every target's model, as it was handed out; None for the others. Whose rows say nothing
        has the common effects alone.
        """
        refuse_one(self.n)
        known, wrong = self._asked()
        silent = [
            i for i in range(self.n) if i not in known and self.ids[i] not in wrong
        ]
        who = np.zeros(0, dtype=np.int64)
        sums = self._nothing()
        if known:
            told = self._weighed(known)
            who = told.who
            sums = self._in_order(total(told.parts))
        found, drawn = self._fit(who, sums, silent)
        self._noted(wrong, [i for i in silent if i not in drawn])
        models = np.repeat(found.common[None], self.n, axis=0)
        models[np.concatenate([drawn, who])] = found.models
        handed: Sequence[Model] = self._handed(models)
        nothing = np.zeros((self.n, len(SHARED)))
        return BlendResult(list(handed), SHARED, nothing, ())

    def nobody(self) -> InputError:
        """What to say where there is nothing to go by."""
        return InputError(
            "no device tells sums over its rows or answers refits, which mixed models are made of."
        )

    def _fit(
        self, who: IntArray, sums: DeviceSums, silent: Sequence[int]
    ) -> tuple[MixedFit, IntArray]:
        """The model, and who has answered refits for it; their models come first."""
        while True:
            rows = those_who_draw(self, silent, sums)
            if rows is None:
                break
            try:
                found = self._drawn(rows, len(who) + len(rows.who))
            except Fewer as fewer:
                silent = np.setdiff1d(rows.who, fewer.who).tolist()
                continue
            one = "tells no sums, and answered refits instead"
            names = [self.ids[i] for i in rows.who.tolist()]
            self.notes.append(
                f"{capital(those(names, one, one.replace('tells', 'tell')))}."
            )
            return found, rows.who
        if not len(who):
            raise self.nobody()
        random = self._random(len(who))
        full = self.effects == "full"
        return fit_of_sums(sums, random, full=full), np.zeros(0, dtype=np.int64)

    def _drawn(self, rows: DrawnRows, many: int) -> MixedFit:
        full = self.effects == "full"
        reml = RestrictedLikelihood(rows, self._random(many), full, rows.label)
        return likeliest_fit(reml, rows.size)

    def _random(self, many: int) -> IntArray:
        """The columns that differ between so many devices."""
        level = self.family.level
        random = random_columns(self.effects, self.family.size, level=level)
        # of one it cannot be seen how devices differ: one fit, of its rows
        return random[:0] if many == 1 else random

    def _nothing(self) -> DeviceSums:
        """The sums of no device."""
        width = self.family.size
        none = np.zeros(0)
        return DeviceSums(np.zeros((0, width, width)), np.zeros((0, width)), none, none)

    def _in_order(self, sums: DeviceSums) -> DeviceSums:
        """With columns in the order of models: ones stand first in sums, and last in models."""
        if not self.family.level:
            return sums
        order = np.roll(np.arange(self.family.size), -1)
        square = sums.square[:, order[:, None], order]
        return sums._replace(square=square, product=sums.product[:, order])
