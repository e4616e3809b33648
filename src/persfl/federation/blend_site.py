"""Blend's questions over a federation: the same as in memory, as messages (see
`persfl.methods.blend.site`).

Every exchange is kept by the journal, so a run that was interrupted goes through the same exchanges
again without asking anybody, and on from there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from persfl.federation.blend_device import family_of
from persfl.federation.blend_group import Ask, FlowerBundle, FlowerGroup, Letter
from persfl.federation.blend_journal import Journal, Replies
from persfl.federation.fleet import Away
from persfl.federation.letters import Letters, Limited, Lost, ends, way, why
from persfl.federation.lockstep import side_by_side
from persfl.federation.model_store import mixture_from
from persfl.federation.roster import Roster
from persfl.methods.blend.fixed_point import counted
from persfl.methods.blend.folds import Folding
from persfl.methods.blend.offers.linear_family import LinearFamily
from persfl.methods.blend.questions import (
    Mix,
    Spread,
    Weight,
    reply_numbers,
)
from persfl.methods.blend.site import (
    Bundle,
    Evidence,
    GroupPlan,
    Result,
    Spreads,
    Starts,
)
from persfl.types import Array, IntArray, Model
from persfl.wire import WireError, nested, pack, unpack, within

_NOTHING: Mapping[str, Any] = {}
_MISSING = {
    "weight": 0.0,
    "noise": 1.0,
    "losses": np.inf,
}  # where a target does not tell


class FlowerSite:
    """Devices behind `letters`, by their ids in sorted order. `targets` are positions of those that
    want a model.

    An exchange waits for the deadline of the letters and goes on with those who answered, if they
    are at least the share `quorum` of those asked; else it asks again, and after `patience` seconds
    raises `Away`.
    """

    def __init__(
        self,
        letters: Letters,
        *,
        ids: Sequence[str],
        targets: IntArray,
        ordered: bool = False,
        quorum: float = 0.5,
        patience: float = 600.0,
        journal: Replies | None = None,
        say: Callable[[dict[str, Any]], None] | None = None,
        seed: int | None = None,
    ) -> None:
        terms = letters.terms
        self.letters = letters
        self.terms = terms
        self.ids, self.targets, self.n = list(ids), targets, len(ids)
        self.family = family_of(terms)
        self.learner = self.family.learner
        self.classes = terms.classes
        self.seed = terms.seed if seed is None else seed
        self.ordered = ordered
        self.quorum = quorum
        self.patience = patience
        self.copies = Folding(terms.classes, ordered).count + 1
        self.roster = Roster()
        self.journal = journal if journal is not None else Journal()
        self.exchanges, self.weight = 0, np.zeros(self.n)
        self.judged: dict[int, dict[str, Any]] = {}
        self.foldless: set[str] = set()  # targets with too few rows for folds
        self._say = say or (lambda _: None)

    def ask(self, asked: list[Letter]) -> list[Mapping[str, Any]]:
        """Exchange these at once."""
        return self._exchange([asked])[0]

    def spreads(self) -> Spreads:
        """Of all devices; a device that does not tell them does not count, and none counts as
        more than is plausible.
        """
        d = self.terms.features
        linear = isinstance(self.family, LinearFamily)
        question = Spread() if linear else Weight()
        told = self.ask([Letter(i, question) for i in range(self.n)])
        found = Spreads(np.zeros(self.n), np.zeros((self.n, d)), np.zeros(self.n))
        for i, arrays in enumerate(told):
            weight = reply_numbers(arrays.get("weight"), (1,))
            squares = np.zeros(d)
            label = weight
            if linear:
                squares = reply_numbers(arrays.get("squares"), (d,))
                label = reply_numbers(arrays.get("label"), (1,))
            good = np.isfinite([*weight, *squares, *label]).all()
            if good and weight[0] > 0:
                found.weight[i] = weight[0]
                found.squares[i] = np.maximum(squares, 0.0)
                found.label[i] = max(label[0], 0.0)
        self.weight = counted(found.weight)
        # as many squares fewer: what a row brings stays
        part = self.weight / np.where(found.weight > 0, found.weight, 1.0)
        squares = found.squares * part[:, None]
        return Spreads(self.weight, squares, found.label * part)

    def work(
        self, plans: Sequence[GroupPlan], piece: Callable[[Bundle], Sequence[Result]]
    ) -> list[Result]:
        """Each for itself and all at once: their questions travel together."""
        pieces = [partial(_piece, self, plan, piece) for plan in plans]
        return [each[0] for each in side_by_side(pieces, self._exchange)]

    def mixed(
        self, plans: Sequence[GroupPlan], evidence: Sequence[Evidence], shares: Array
    ) -> list[Model]:
        """Every device's model, made at home; None for devices that are no targets, or could
        not be reached.
        """
        views: dict[int, list[Any]] = {}
        for plan, judged in zip(plans, evidence, strict=True):
            for t, i in enumerate(plan.mine.tolist()):
                starts = self.starts_of(judged.offers, t)
                views.setdefault(i, []).append((plan.look, starts))
        asked = [
            Letter(i, Mix(ordered=self.ordered, views=tuple(each), shares=shares[i]))
            for i, each in views.items()
        ]
        models: list[Model] = [None] * self.n
        for letter, told in zip(asked, self.ask(asked), strict=True):
            try:
                models[letter.to] = mixture_from(self.terms, within("model", told))
            except WireError:
                continue
            self.judged[letter.to] = {
                name: told.get(name) for name in ("judged", "errors", "mistakes")
            }
        return models

    def starts_of(self, starts: Starts, t: int) -> dict[str, Any]:
        """What target `t` of a group is told."""
        mine = slice(t * self.copies, (t + 1) * self.copies)
        return {
            name: form.part(starts[name], "copies", mine)
            for name, form in self.family.start_forms().items()
        }

    def _exchange(self, lines: list[list[Letter]]) -> list[list[Mapping[str, Any]]]:
        """The arrays told to every question of every line; none for no usable answer."""
        asks: dict[int, list[tuple[int, int, Letter]]] = {}
        for k, letters in enumerate(lines):
            for j, letter in enumerate(letters):
                asks.setdefault(letter.to, []).append((k, j, letter))
        number = self.exchanges
        self.exchanges += 1
        self.letters.next(number + 1)
        replies = self._replies(
            number, {i: [q for _, _, q in each] for i, each in asks.items()}
        )
        found: list[list[Mapping[str, Any]]] = [
            [_NOTHING] * len(questions) for questions in lines
        ]
        for i, each in asks.items():
            if i not in replies:
                continue
            head, arrays = replies[i]
            codes = head.get("codes")
            if not isinstance(codes, list) or len(codes) != len(each):
                self.roster.failed(self.ids[i], number, "format", len(each))
                continue
            for place, ((k, j, _), code) in enumerate(zip(each, codes, strict=True)):
                if code == "ok":
                    found[k][j] = within(f"k{place}", arrays)
                    self.roster.count(self.ids[i], "answered")
                else:
                    self.roster.count(self.ids[i], way(code))
            self.roster.answered(self.ids[i], number)
        return found

    def _replies(
        self, number: int, asks: Mapping[int, Sequence[Letter]]
    ) -> dict[int, tuple[dict[str, Any], dict[str, Any]]]:
        kept = self.journal.get(number)
        if kept is not None:
            told, arrays = unpack(kept, most=max(len(kept), 1))
            self.roster = Roster.from_plain(told["roster"])
            bodies = {int(i): arrays[str(i)].tobytes() for i in told["from"]}
        else:
            bodies = self._bodies(number, asks)
            packed = {
                str(i): np.frombuffer(body, dtype=np.uint8)
                for i, body in bodies.items()
            }
            self.journal.put(
                number,
                pack(
                    {"roster": self.roster.to_plain(), "from": sorted(bodies)}, packed
                ),
            )
        return {
            i: self.letters.opened(self.ids[i], body, "blend", number)
            for i, body in bodies.items()
        }

    def _bodies(
        self, number: int, asks: Mapping[int, Sequence[Letter]]
    ) -> dict[int, bytes]:
        """One message to each device, in several goes where too few answer."""
        begin = time.monotonic()
        found = dict[int, bytes]()
        left = {
            i: each for i, each in asks.items() if self.roster.due(self.ids[i], number)
        }
        for i in asks.keys() - left.keys():
            self.roster.count(self.ids[i], "rested")
        while True:
            letters = {
                self.ids[i]: ("blend", self._letter(number, i, each))
                for i, each in left.items()
            }
            for i, each in left.items():
                self.roster.count(self.ids[i], "asked", len(each))
            for name, reply in self.letters.exchange(letters).items():
                i = self.ids.index(name)
                try:
                    head, _ = self.letters.opened(name, reply, "blend", number)
                    codes = head.get("codes")
                    for code in codes if isinstance(codes, list) else ():
                        self._going(name, number, code)
                    assert isinstance(reply, bytes)
                    found[i] = reply
                except Lost as lost:
                    self._going(name, number, lost.code)
                    self.roster.failed(name, number, lost.how)
            self._say(
                {
                    "exchange": number + 1,
                    "asked": len(asks),
                    "answered": len(found),
                    "questions": sum(map(len, asks.values())),
                    "seconds": round(time.monotonic() - begin, 3),
                    "missing": [self.ids[i] for i in left if i not in found],
                }
            )
            left = {i: each for i, each in left.items() if i not in found}
            if len(found) >= max(1, math.ceil(self.quorum * len(asks))):
                return found
            if time.monotonic() - begin > self.patience:
                raise Away(
                    f"exchange {number + 1}: {len(found)} of {len(asks)} devices answered within"
                    f" {time.monotonic() - begin:.0f} s, and the quorum is {self.quorum:g} of them."
                    " Everything is kept: go on when they are back."
                )
            time.sleep(min(1.0, self.patience))
            left = left or {i: each for i, each in asks.items() if i not in found}

    def _going(self, name: str, number: int, code: Any) -> None:
        """Without what a limit holds back a run would come to something else, and not say so."""
        if ends(code):
            kept = "Everything is kept: go on when that is done."
            raise Limited(f"exchange {number + 1}: {why(name, code)} {kept}")

    def _letter(self, number: int, i: int, asks: Sequence[Letter]) -> bytes:
        heads: list[dict[str, Any]] = []
        arrays: dict[str, Any] = {}
        for place, letter in enumerate(asks):
            wire = letter.question.wire(self.family)
            named = {"names": list(letter.names)} if letter.names else {}
            heads.append(wire.head | named)
            arrays |= nested(f"k{place}", wire.arrays)
        return self.letters.letter(number, i, {"asks": heads}, arrays)


def _piece(
    site: FlowerSite,
    plan: GroupPlan,
    piece: Callable[[Bundle], Sequence[Result]],
    ask: Ask,
) -> Sequence[Result]:
    return piece(FlowerBundle(FlowerGroup(site, ask, plan)))
