"""Rows of a mixed model over a federation whose owners allow no sums: their devices answer refits
(see `persfl.methods.mixed.drawn_fits`). What others would answer is computed from their sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from persfl.errors import PersflError
from persfl.federation.blend_exchange import BlendExchange, Letter
from persfl.federation.told_sums import counting_of
from persfl.methods.blend.evidence import ABSURD
from persfl.methods.blend.fixed_point import counted
from persfl.methods.blend.question_base import reply_numbers
from persfl.methods.blend.questions import Draw
from persfl.methods.mixed.device_sums import DeviceSums
from persfl.methods.mixed.drawn_fits import Drawing, DrawnFits, drawn_fits
from persfl.methods.mixed.reml import EffectSums
from persfl.types import Array, IntArray


class Fewer(PersflError):
    """These devices answer no more, or what no rows say."""

    def __init__(self, who: IntArray) -> None:
        super().__init__("devices answer no refits.")
        self.who = who


@dataclass(eq=False)
class DrawnRows:
    """Rows of the devices at these positions, asked one exchange after another; `sums` are those
    of others. Columns count as `size` times as large as they are; a centre is remembered, since
    answers near the fleet's own are the most exact.
    """

    site: BlendExchange
    who: IntArray
    sums: DeviceSums
    size: Array
    less: Array = field(init=False)
    centre: Array = field(init=False)
    weight: float = 0.0
    label: float = 0.0

    def __post_init__(self) -> None:
        self.less = np.ones(len(self.who))
        self.centre = np.zeros(len(self.size))

    def begin(self) -> None:
        """How many rows there are, and of what size columns are: what one model for all says.

        Nobody counts as more than ten usual devices.
        """
        width = len(self.size)
        asked = Drawing.toward(np.zeros((width, width)), self.centre)
        found = self._answers(asked)
        there = found.weight
        # nothing but a hair is added to rows: so these are sums over them
        sums = found.evidence(asked)
        self.less = counting_of(there, sums.H, sums.left)[: len(self.who)]
        evidence = self.evidence(np.zeros((width, width)), np.arange(width))
        self.weight = float(counted(there).sum())
        self.label = float(np.abs(evidence.left).sum())
        mean = np.einsum("nii->i", evidence.H) / self.weight
        self.size = self.size * np.sqrt(np.where(mean > 0, mean, 1.0))
        self.centre = np.zeros(width)

    def evidence(self, L: Array, random: IntArray) -> EffectSums:
        """What answers say under D = L L' of the random columns."""
        wide = np.zeros((len(self.size), len(self.size)))
        wide[np.ix_(random, random)] = L
        asked = Drawing.toward(wide, self.centre)
        found = self._answers(asked).evidence(asked)
        self._refuse_absurd(found.left)
        square = found.H.sum(axis=0)
        self.centre = np.linalg.lstsq(square, found.h.sum(axis=0), rcond=1e-11)[0]
        return found

    def _refuse_absurd(self, left: Array) -> None:
        """Stop where what is left of somebody's labels is beyond anything usual: a centre that
        follows it leaves no digits for the answers of others.
        """
        most = ABSURD * float(np.median(left))
        odd = left[: len(self.who)] > most
        if len(left) > 2 and most > 0 and odd.any():
            raise Fewer(self.who[odd])

    def _answers(self, asked: Drawing) -> DrawnFits:
        """Of those who are asked, then of those whose sums are known."""
        turned = self.sums.turned(np.diag(1.0 / self.size))
        known = drawn_fits(turned, asked)
        told = self._told(asked)
        sound = told.of_rows(asked)
        if not sound.all():
            raise Fewer(self.who[~sound])
        told = told._replace(left=told.left * self.less, weight=told.weight * self.less)
        both = zip(told, known, strict=True)
        return DrawnFits(*(np.concatenate(each) for each in both))

    def _told(self, asked: Drawing) -> DrawnFits:
        """Of those who are asked: NaN where they said nothing."""
        size = self.size
        width = len(size)
        # rows that weigh less are as a pull that weighs more
        roots = (asked.root * size) / np.sqrt(self.less)[:, None, None]
        centres = asked.centres / size
        letters = [
            Letter(i, Draw(root=root, centres=centres))
            for i, root in zip(self.who.tolist(), roots, strict=True)
        ]
        models, left, weight = [], [], []
        for told in self.site.ask(letters, of_all=True):
            models.append(reply_numbers(told.get("models"), (1 + width, width)) * size)
            left.append(reply_numbers(told.get("left"), (1,))[0])
            weight.append(reply_numbers(told.get("weight"), (1,))[0])
        return DrawnFits(np.array(models), np.array(left), np.array(weight))


def those_who_draw(
    site: BlendExchange, silent: Sequence[int], sums: DeviceSums
) -> DrawnRows | None:
    """The rows of those who answer refits, of all who told no sums; None where nobody does."""
    size = np.ones(sums.product.shape[1])
    who = np.array(silent, dtype=np.int64)
    while len(who):
        rows = DrawnRows(site, who, sums, size)
        try:
            rows.begin()
        except Fewer as fewer:
            who = np.setdiff1d(who, fewer.who)
            continue
        return rows
    return None
