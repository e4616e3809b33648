"""Exchanges of a blend: every device gets one message with all that is asked of it, and everything
that came back is kept.

A run that was interrupted goes through the same exchanges again without asking anybody, and on from
there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from persfl.checks import those
from persfl.errors import InputError
from persfl.federation.blend_journal import Journal, Replies
from persfl.federation.letters import (
    Letters,
    Limited,
    Lost,
    are_few,
    at_limits,
    capital,
    ends,
    forbids,
    way,
    why,
)
from persfl.federation.patience import Away
from persfl.federation.roster import Roster
from persfl.methods.blend.forms import ModelFamily
from persfl.methods.blend.question_base import Question
from persfl.types import IntArray
from persfl.wire.codec import WireError, nested, pack, unpack, within

NOTHING: Mapping[str, Any] = {}  # said by whoever gave no usable answer


class Letter(NamedTuple):
    """A question to the device at this position, on behalf of these; none for the run itself."""

    to: int
    question: Question
    names: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class BlendScene:
    """Who takes part: devices by their ids in sorted order, `targets` the positions of those that
    want a model.

    An exchange waits for the deadline of the letters and goes on with those who answered, if they
    are at least the share `quorum` of those asked; else it asks again, and after `patience` seconds
    raises `Away`. What came back is kept by the journal; `say` is told of every exchange, `notice`
    what else a person should know.
    """

    ids: Sequence[str]
    targets: IntArray
    seed: int
    ordered: bool = False
    quorum: float = 0.5
    patience: float = 600.0
    journal: Replies = field(default_factory=Journal)
    say: Callable[[dict[str, Any]], None] = lambda _: None
    notice: Callable[[str], None] = lambda _: None


class BlendExchange:
    """Devices behind `letters`."""

    def __init__(
        self, letters: Letters, family: ModelFamily, scene: BlendScene
    ) -> None:
        self.letters = letters
        self.terms = letters.terms
        self.learner = family.learner
        self.scene = scene
        self.ids, self.targets, self.n = list(scene.ids), scene.targets, len(scene.ids)
        self.seed = scene.seed
        self.ordered = scene.ordered
        self.roster = Roster()
        self.exchanges = 0
        self.judged: dict[int, dict[str, Any]] = {}
        self.foldless: set[str] = set()  # targets with too few rows for folds
        self.notes: list[str] = []
        self._family = family

    def ask(
        self, asked: list[Letter], *, of_all: bool = False
    ) -> list[Mapping[str, Any]]:
        """Exchange these at once (see `exchange`)."""
        return self.exchange([asked], of_all=of_all)[0]

    def exchange(
        self, lines: list[list[Letter]], *, of_all: bool = False
    ) -> list[list[Mapping[str, Any]]]:
        """The arrays told to every question of every line; none for no usable answer.

        It waits until a quorum of those asked have answered; or, where few are asked whom nothing
        hangs on, until no more are missing than a quorum `of_all` devices leaves room for.
        """
        asks: dict[int, list[tuple[int, int, Letter]]] = {}
        for k, letters in enumerate(lines):
            for j, letter in enumerate(letters):
                asks.setdefault(letter.to, []).append((k, j, letter))
        number = self.exchanges
        self.exchanges += 1
        self.letters.next(number + 1)
        questions = {i: [q for _, _, q in each] for i, each in asks.items()}
        share = self.scene.quorum
        least = max(1, math.ceil(share * len(asks)))
        if of_all:
            least = max(0, len(asks) - self.n + math.ceil(share * self.n))
        replies = self._replies(number, questions, least)
        found: list[list[Mapping[str, Any]]] = [
            [NOTHING] * len(letters) for letters in lines
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
        self, number: int, asks: Mapping[int, Sequence[Letter]], least: int
    ) -> dict[int, tuple[dict[str, Any], dict[str, Any]]]:
        kept = self.scene.journal.get(number)
        if kept is not None:
            return self._kept(number, asks, kept)
        bodies = self._bodies(number, asks, least)
        known = {
            "roster": self.roster.to_plain(),
            "from": sorted(bodies),
            "asked": self._kinds(asks),
        }
        packed = {
            str(i): np.frombuffer(body, dtype=np.uint8) for i, body in bodies.items()
        }
        self.scene.journal.put(number, pack(known, packed))
        return self._opened(number, bodies)

    def _opened(
        self, number: int, bodies: Mapping[int, bytes]
    ) -> dict[int, tuple[dict[str, Any], dict[str, Any]]]:
        return {
            i: self.letters.opened(self.ids[i], body, "blend", number)
            for i, body in bodies.items()
        }

    def _kinds(self, asks: Mapping[int, Sequence[Letter]]) -> dict[str, list[str]]:
        """What everybody is asked: other versions may ask something else."""
        return {
            self.ids[i]: [letter.question.kind for letter in each]
            for i, each in asks.items()
        }

    def _kept(
        self, number: int, asks: Mapping[int, Sequence[Letter]], body: bytes
    ) -> dict[int, tuple[dict[str, Any], dict[str, Any]]]:
        """What came back before the run was cut, if it was asked of the same devices."""
        try:
            told, arrays = unpack(body, most=max(len(body), 1))
            if told["asked"] != self._kinds(asks):
                raise ValueError
            bodies = {i: arrays[str(i)].tobytes() for i in told["from"] if i in asks}
            found = self._opened(number, bodies)
            self.roster = Roster.from_plain(told["roster"])
        except (WireError, InputError, Lost, KeyError, TypeError, ValueError):
            raise InputError(
                f"what was kept of exchange {number + 1} is not what this run asks: it is of other"
                " devices, of another version of persfl, or damaged. Run again into another folder."
            ) from None
        return found

    def _bodies(
        self, number: int, asks: Mapping[int, Sequence[Letter]], least: int
    ) -> dict[int, bytes]:
        """One message to each device, in several goes where fewer than `least` answer."""
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
                        self._limited(name, code)
                    assert isinstance(reply, bytes)
                    found[i] = reply
                except Lost as lost:
                    self._limited(name, lost.code)
                    self.roster.failed(name, number, lost.how)
            self._stop_at_limits(number)
            self.scene.say(
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
            if len(found) >= least:
                return found
            if time.monotonic() - begin > self.scene.patience:
                raise Away(
                    f"exchange {number + 1}: {len(found)} of {len(asks)} devices answered within"
                    f" {time.monotonic() - begin:.0f} s, and the quorum is"
                    f" {self.scene.quorum:g} of them. Everything is kept: go on when they are back."
                    f"{at_limits(self.roster.limits)}"
                )
            time.sleep(min(1.0, self.scene.patience))
            left = left or {i: each for i, each in asks.items() if i not in found}

    def _limited(self, name: str, code: Any) -> None:
        """A device at a limit of its owner: others go on without, and that is said."""
        if (ends(code) or forbids(code)) and name not in self.roster.limits:
            self.roster.limits[name] = code
            self.scene.notice(why(name, code))

    def _stop_at_limits(self, number: int) -> None:
        """Where half of the devices are at limits, a run would come to something else. Fewer end
        nobody else's run: it may be a lie.
        """
        limits = self.roster.limits
        held = {name: limits[name] for name in sorted(limits) if ends(limits[name])}
        home = [name for name in held if name in self.letters.home]
        if held and (home or not are_few(held, self.ids)):
            name = [*home, *held][0]
            kept = "Everything is kept: go on when that is done."
            raise Limited(f"exchange {number + 1}: {why(name, held[name])} {kept}")

    def _letter(self, number: int, i: int, asks: Sequence[Letter]) -> bytes:
        heads: list[dict[str, Any]] = []
        arrays: dict[str, Any] = {}
        for place, letter in enumerate(asks):
            wire = letter.question.wire(self._family)
            named = {"names": list(letter.names)} if letter.names else {}
            heads.append(wire.head | named)
            arrays |= nested(f"k{place}", wire.arrays)
        return self.letters.letter(number, i, {"asks": heads}, arrays)

    def noted_alone(self, names: Sequence[str]) -> None:
        """Who keeps the model of own rows alone, if anybody does."""
        if names:
            self.notes.append(
                f"{capital(those(names, 'keeps the model', 'keep models'))} of own rows alone,"
                " whatever shares say: on these the mix was at least twice as bad."
            )

    def tells(self, i: int, told: Mapping[str, Any]) -> None:
        """Keep what a target tells of the rows that it held back."""
        names = ("judged", "errors", "mistakes")
        self.judged[i] = {name: told.get(name) for name in names}
