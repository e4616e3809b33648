"""Blend of linear models under squared loss over a federation: every device tells sums over parts
of its rows once, the coordinator does the rest, and hands each target its model.

The same rule as in one process (`persfl.methods.mixed`), from the same sums; trees, which need rows
of several devices in one place, are not offered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from persfl.checks import those
from persfl.federation.blend_exchange import (
    NOTHING,
    BlendScene,
    Letter,
)
from persfl.federation.doubts import DoubtfulExchange
from persfl.federation.letters import Letters, capital
from persfl.federation.sums_look import own_alone, worse_than_own
from persfl.federation.told_sums import (
    MANY,
    SumsFamily,
    counting,
    in_one_part,
    latest_of,
    uneven,
)
from persfl.learners.linear import Linear
from persfl.methods.blend.mixture import BlendResult
from persfl.methods.blend.questions import PartSums, Take
from persfl.methods.mixed.device_sums import DeviceSums, total
from persfl.methods.mixed.hidden_rows import NEVER, Hidden, folds_of
from persfl.methods.mixed.latest_rows import LatestRows
from persfl.methods.mixed.linear_rule import blend_of_sums
from persfl.methods.mixed.linear_stage import sums_result
from persfl.methods.mixed.principal_axes import PrincipalAxes, axes_of_sums
from persfl.methods.mixed.sums_blend import LinearBlend
from persfl.types import Array, IntArray, Model

NO_TREES = (
    "Trees of the whole fleet, which blend offers beside linear models where all rows are in one"
    " place, are not offered over a federation."
)


class ToldSums(NamedTuple):
    """The devices whose sums can be used, the sums of each part of their rows, the latest rows of
    each, and how many rows these are, whatever they count as.
    """

    who: IntArray
    parts: list[DeviceSums]
    latest: list[LatestRows]
    rows: Array


Known = tuple[DeviceSums, LatestRows]


class SumsSite(DoubtfulExchange):
    """The devices of a run."""

    def __init__(self, letters: Letters, scene: BlendScene) -> None:
        terms = letters.terms
        self.family = SumsFamily(terms.learner(), terms.features)
        super().__init__(letters, self.family, scene)

    def blended(self) -> BlendResult:
        """Every target's model, as it was handed out; None for the others."""
        found = sums_result(self._fleet(self._told()), self.family.level)
        wanted = np.isin(np.arange(self.n), self.targets)
        mix = found.shares * wanted[:, None]
        models = np.asarray(found.models)
        return replace(found, models=self._handed(models), shares=mix)

    def _told(self) -> ToldSums:
        """The sums of one exchange, or an InputError where nobody tells any."""
        known, wrong = self._asked()
        if not known:
            raise self.nobody()
        away = np.setdiff1d(np.arange(self.n), list(known)).tolist()
        self._noted(wrong, [i for i in away if self.ids[i] not in wrong])
        return self._weighed(known)

    def _asked(self) -> tuple[dict[int, Known], list[str]]:
        """Sums and latest rows by the device's position, and who tells what no rows have, which
        costs it its say.
        """
        number = self.exchanges
        question = PartSums(ordered=self.ordered)
        letters = [Letter(i, question) for i in range(self.n)]
        known: dict[int, Known] = {}
        wrong = list[str]()
        for i, told in enumerate(self.ask(letters)):
            sums = self.family.read(told)
            latest = None if sums is None else self.family.read_latest(told, sums)
            if sums is not None and latest is not None:
                known[i] = sums, latest
            elif told is not NOTHING:
                wrong.append(self.ids[i])
                self.doubted(i, told, number)
        return known, wrong

    def _noted(self, wrong: Sequence[str], silent: Sequence[int]) -> None:
        """Who is left out, and why."""
        for names, one, several in (
            (wrong, "tells sums that no rows have", "tell sums that no rows have"),
            ([self.ids[i] for i in silent], "has told no sums", "have told no sums"),
        ):
            if names:
                said = capital(those(names, one, several))
                self.notes.append(f"{said}, and {_left_out(names)}.")

    def _weighed(self, known: Mapping[int, Known]) -> ToldSums:
        """Nobody counts as more than ten usual devices, nor decides by one part of its rows; what
        is unusual is noted.
        """
        who = np.array(sorted(known))
        sums, newest = zip(*(known[i] for i in who.tolist()), strict=True)
        parts = [DeviceSums(*of_part) for of_part in _by_part(sums)]
        latest = [LatestRows(*of_part) for of_part in _by_part(newest)]
        rows = total(parts).weight
        less = counting(parts)
        odd = uneven(parts) & (len(who) > 2)
        parts = in_one_part(parts, odd) if odd.any() else parts
        heavy = [self.ids[i] for i in who[less < 1].tolist()]
        whole = who[(total(parts[:NEVER]).weight == 0) & ~odd]
        both = np.intersect1d(whole, self.targets).tolist()
        self.foldless |= {self.ids[i] for i in both}
        if heavy:
            one = "tells sums that are far larger than usual"
            said = capital(those(heavy, one, one.replace("tells", "tell")))
            self.notes.append(
                f"{said}, and {'count' if heavy[1:] else 'counts'} for less."
            )
        if odd.any():
            names = [self.ids[i] for i in who[odd].tolist()]
            one = "tells sums of which one part is far larger than the others"
            said = capital(those(names, one, one.replace("tells", "tell")))
            self.notes.append(f"{said}; no rows of {_theirs(names)} are hidden.")
        parts = [each.weighed(less) for each in parts] if heavy else parts
        return ToldSums(who, parts, latest, rows)

    def _fleet(self, told: ToldSums) -> LinearBlend:
        """Of everybody; whose sums are not known has the model of a device without rows."""
        level = self.family.level
        axes = axes_of_sums(total(told.parts), level)
        parts = [axes.inside_sums(each) for each in told.parts]
        there = np.flatnonzero([each.weight.any() for each in parts])
        folds = folds_of(there, ordered=self.ordered)
        never = NEVER if NEVER in there else None
        used = parts if never else parts[:NEVER]
        latest = self._latest(told, folds, axes) if self.ordered and level else []
        known = blend_of_sums(
            used, folds, level=level, seed=self.seed, never=never, latest=latest
        )
        alone = own_alone(parts, level)
        worse = worse_than_own(known, parts, folds, alone, told.rows)
        found = known.blended(axes)
        if worse.any():
            self._said_alone([self.ids[i] for i in told.who[worse].tolist()])
            here = worse[:, None]
            own = axes.outside(alone.models)
            found = found._replace(
                models=np.where(here, own, found.models),
                made_of=np.where(here, [1.0, 0.0, 0.0], found.made_of),
            )
        return _among_all(found, told.who, self.n, level)

    def _latest(
        self, told: ToldSums, folds: Sequence[Hidden], axes: PrincipalAxes
    ) -> list[LatestRows]:
        """The latest rows of what each fold learns from and, last, of all."""
        rows = [each.along(axes.inside) for each in told.latest]
        every = tuple(range(MANY))
        return [latest_of(rows, learn) for learn in [f.learn for f in folds] + [every]]

    def _said_alone(self, names: Sequence[str]) -> None:
        self.notes.append(
            f"{capital(those(names, 'has the model', 'have models'))} of own rows alone, whatever"
            " shares say: on these the mix was at least twice as bad."
        )

    def _handed(self, models: Array) -> list[Model]:
        """Each target takes its model; None where that did not come about."""
        letters = [Letter(i, Take(model=models[i])) for i in self.targets.tolist()]
        found: list[Model] = [None] * self.n
        for letter, told in zip(letters, self.ask(letters), strict=True):
            if told is not NOTHING:
                found[letter.to] = models[letter.to]
                self.tells(letter.to, told)
        return found


def _by_part(told: Sequence[tuple[Array, ...]]) -> list[tuple[Array, ...]]:
    """What devices tell, part by part: of each array the rows of all devices."""
    stacked = [np.stack(arrays, axis=1) for arrays in zip(*told, strict=True)]
    return [tuple(array[k] for array in stacked) for k in range(MANY)]


def _theirs(names: Sequence[str]) -> str:
    return "these" if names[1:] else "this one"


def _left_out(names: Sequence[str]) -> str:
    """What becomes of devices whose sums are not known."""
    each = "each is" if names[1:] else "is"
    return f"{each} left out; as a target it has the model of a device without rows"


def _among_all(found: LinearBlend, who: IntArray, n: int, level: bool) -> LinearBlend:
    """The same with those whose sums are not known, who have the model of no rows."""
    if len(who) == n:
        return found
    none = np.zeros(0)
    width = found.models.shape[1] - level
    learner = Linear(intercept=level)
    nobody = found.population.newcomer(np.zeros((0, width)), none, none, learner)

    def wide(array: Array, other: Any) -> Array:
        every = np.full((n, *array.shape[1:]), np.nan)
        every[:] = other
        every[who] = array
        return every

    return found._replace(
        models=wide(found.models, np.roll(nobody, int(level))),
        made_of=wide(found.made_of, [0.0, 1.0, 0.0]),
        posterior=wide(found.posterior, 0.0),
        centres=who[found.centres],
        centre_error=wide(found.centre_error, np.inf),
        fleet_error=wide(found.fleet_error, np.nan),
        likeness=found.likeness._replace(chance=wide(found.likeness.chance, np.nan)),
    )
