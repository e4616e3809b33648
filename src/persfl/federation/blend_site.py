"""Blend's questions over a federation: the same as in memory, as messages (see
`persfl.methods.blend.site`).

Every exchange is kept by the journal, so a run that was interrupted goes through the same exchanges
again without asking anybody, and on from there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from persfl.federation.fleet import Away
from persfl.federation.letters import Letters, Limited, Lost, ends, way, why
from persfl.federation.lockstep import side_by_side
from persfl.federation.roster import Roster
from persfl.methods.blend.linear_rows import Folding, route
from persfl.methods.blend.ridge_refit import Toward
from persfl.methods.blend.site import Evidence, Spreads, Starts
from persfl.methods.blend.views import Look
from persfl.types import Array, IntArray
from persfl.wire import nested, pack, unpack, within
from persfl.wire.models import LARGE

_NOTHING: Mapping[str, Any] = {}


class Question(NamedTuple):
    """To the device at this position: plain values and arrays."""

    to: int
    head: Mapping[str, Any]
    arrays: Mapping[str, Any]


class Journal:
    """What came back in every exchange, by its number; this one forgets nothing until the
    process ends.
    """

    def __init__(self) -> None:
        self._kept: dict[int, bytes] = {}

    def get(self, number: int) -> bytes | None:
        """The replies of an exchange, if it was made before."""
        return self._kept.get(number)

    def put(self, number: int, body: bytes) -> None:
        """Keep the replies of an exchange."""
        self._kept[number] = body


class FlowerHomes:
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
        journal: Any = None,
        say: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        terms = letters.terms
        self.letters, self.terms, self.ids, self.targets = (
            letters,
            terms,
            list(ids),
            targets,
        )
        self.n, self.learner, self.features, self.classes = (
            len(self.ids),
            terms.learner(),
            terms.features,
            terms.classes,
        )
        self.ordered, self.quorum, self.patience = ordered, quorum, patience
        self.copies = Folding(terms.classes, ordered, terms.seed).count + 1
        self.roster, self.journal = (
            Roster(),
            journal if journal is not None else Journal(),
        )
        self.exchanges, self.weight = 0, np.zeros(self.n)
        self.judged: dict[int, dict[str, Any]] = {}
        self.foldless: set[str] = set()  # targets with too few rows for folds
        self._say = say or (lambda _: None)
        self._ask: Callable[[list[Question]], list[Mapping[str, Any]]] = lambda asked: (
            self._exchange([asked])[0]
        )

    def spreads(self) -> Spreads:
        """Of all devices; a device that does not tell them does not count."""
        told = self._ask([Question(i, {"what": "spread"}, {}) for i in range(self.n)])
        found = Spreads(
            np.zeros(self.n), np.zeros((self.n, self.features)), np.zeros(self.n)
        )
        for i, arrays in enumerate(told):
            weight, squares, label = (
                numbers(arrays.get(name), shape)
                for name, shape in (
                    ("weight", (1,)),
                    ("squares", (self.features,)),
                    ("label", (1,)),
                )
            )
            if (
                np.isfinite(weight).all()
                and np.isfinite(squares).all()
                and np.isfinite(label).all()
                and weight[0] > 0
            ):
                found.weight[i], found.squares[i], found.label[i] = (
                    weight[0],
                    np.maximum(squares, 0.0),
                    max(label[0], 0.0),
                )
        self.weight = found.weight
        return found

    def part(
        self, look: Look, mine: IntArray, rest: IntArray, seed: int, budget: float
    ) -> FlowerPart:
        """These targets and their peers in one view."""
        return FlowerPart(self, self._ask, look, mine, rest, seed, budget)

    def side_by_side(self, work: Sequence[Callable[[Any], Any]]) -> list[Any]:
        """All at once: their questions travel together."""
        homes = [_Asking(self) for _ in work]

        def piece(home: _Asking, one: Callable[[Any], Any]) -> Callable[[Any], Any]:
            def go(ask: Any) -> Any:
                home.ask = ask
                return one(home)

            return go

        return side_by_side(
            [piece(home, one) for home, one in zip(homes, work, strict=True)],
            self._exchange,
        )

    def mixed(
        self, parts: Sequence[tuple[Any, IntArray, Any]], shares: Array
    ) -> list[Any]:
        """Every device's model, made at home; None for devices that are no targets, or could
        not be reached.
        """
        mine: dict[int, list[tuple[Look, Any]]] = {}
        for look, which, kept in parts:
            for t, i in enumerate(which.tolist()):
                mine.setdefault(i, []).append(
                    (
                        look,
                        {
                            name: _of(array, t, self.copies)
                            for name, array in kept.items()
                        },
                    )
                )
        asked = []
        for i, views in mine.items():
            arrays: dict[str, Any] = {"shares": shares[i]}
            for k, (look, starts) in enumerate(views):
                arrays |= nested(f"v{k}", {"variance": look.variance, **starts})
            head = {
                "what": "mix",
                "ordered": self.ordered,
                "views": [look.name for look, _ in views],
                "labels": [float(look.label) for look, _ in views],
            }
            asked.append(Question(i, head, arrays))
        models: list[Any] = [None] * self.n
        for question, told in zip(asked, self._ask(asked), strict=True):
            model = numbers(told.get("model"), (self.learner.size(self.features),))
            if np.isfinite(model).all():
                models[question.to] = model
                self.judged[question.to] = {
                    name: told.get(name) for name in ("judged", "errors", "mistakes")
                }
        return models

    def _exchange(self, lines: list[list[Question]]) -> list[list[Mapping[str, Any]]]:
        """The arrays told to every question of every line; none for no usable answer."""
        asks: dict[int, list[tuple[int, int, Question]]] = {}
        for k, questions in enumerate(lines):
            for j, question in enumerate(questions):
                asks.setdefault(question.to, []).append((k, j, question))
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
        self, number: int, asks: Mapping[int, Sequence[Question]]
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
        self, number: int, asks: Mapping[int, Sequence[Question]]
    ) -> dict[int, bytes]:
        """One message to each device, in several goes where too few answer."""
        begin, found = time.monotonic(), dict[int, bytes]()
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

    def _letter(self, number: int, i: int, asks: Sequence[Question]) -> bytes:
        arrays: dict[str, Any] = {}
        for place, question in enumerate(asks):
            arrays |= nested(f"k{place}", dict(question.arrays))
        return self.letters.letter(
            number, i, {"asks": [dict(question.head) for question in asks]}, arrays
        )


class _Asking:
    """The homes as one piece of work sees them: its questions wait for those of the others."""

    def __init__(self, homes: FlowerHomes) -> None:
        self._homes, self.ask = homes, homes._ask

    def part(self, *given: Any) -> FlowerPart:
        """As that of the homes."""
        return FlowerPart(self._homes, self.ask, *given)


class FlowerPart:
    """See `persfl.methods.blend.site.Part`."""

    def __init__(
        self,
        homes: FlowerHomes,
        ask: Any,
        look: Look,
        mine: IntArray,
        rest: IntArray,
        seed: int,
        budget: float,
    ) -> None:
        self.learner, self.features, self.seed, self.budget = (
            homes.learner,
            homes.features,
            seed,
            budget,
        )
        self.peers, self.targets, self.copies = len(rest), len(mine), homes.copies
        self.weight = np.where(homes.weight[rest] > 0, homes.weight[rest], 1.0)
        self._homes, self._ask, self._mine, self._rest = homes, ask, mine, rest
        self._about = {"view": look.name, "label": float(look.label)}
        self._variance, self._size = look.variance, homes.learner.size(homes.features)

    def answers(
        self, proposer: Any, who: IntArray, models: Array, whose: IntArray | None = None
    ) -> Array:
        """A question to each peer, with all models that it is asked about."""
        out = np.full(models.shape, np.nan)
        asked, places = [], []
        for p in np.unique(who[who >= 0]).tolist():
            at = np.flatnonzero(who == p)
            names = (
                [""] * len(at)
                if whose is None
                else [self._name(int(c)) for c in whose[at]]
            )
            head, arrays = self._probe(proposer, models[at])
            asked.append(
                self._question(int(self._rest[p]), {**head, "names": names}, arrays)
            )
            places.append(at)
        for at, told in zip(places, self._ask(asked), strict=True):
            out[at] = numbers(told.get("answers"), (len(at), self._size))
        return out

    def rough(self, who: IntArray, mean: Array, strength: Array) -> Array:
        """A number of each peer."""
        arrays = {"mean": mean, "strength": strength}
        told = self._ask(
            [
                self._question(int(self._rest[p]), {"what": "rough"}, arrays)
                for p in who.tolist()
            ]
        )
        return np.array([numbers(each.get("noise"), (1,))[0] for each in told])

    def own_rows(self) -> Array:
        """A target that does not tell has no rows, and so no say."""
        return self._own({}, {}, "weight", (self.copies,), 0.0)

    def own_answers(self, proposer: Any, models: Array) -> Array:
        """What each copy would answer."""
        head, arrays = self._probe(proposer, models)
        told = self._ask(
            [
                self._target(i, {**head, "what": "own"}, arrays)
                for i in self._mine.tolist()
            ]
        )
        shape = (len(models), self.copies, self._size)
        found = [numbers(each.get("answers"), shape) for each in told]
        return np.concatenate(
            [np.where(np.isfinite(each), each, models[:, None]) for each in found],
            axis=1,
        )

    def own_rough(self, mean: Array, strength: Array) -> Array:
        """How noisy each copy is."""
        return np.maximum(
            self._own(
                {}, {"mean": mean, "strength": strength}, "noise", (self.copies,), 1.0
            ),
            1e-5,
        )

    def losses(self, models: Array) -> Array:
        """Weighed by the targets."""
        each = models.reshape(self.targets, self.copies, *models.shape[1:])
        told = self._ask(
            [
                self._target(
                    i, {"what": "weigh", "many": models.shape[1]}, {"models": each[t]}
                )
                for t, i in enumerate(self._mine.tolist())
            ]
        )
        found = np.stack(
            [numbers(one.get("losses"), (self.copies, models.shape[1])) for one in told]
        )
        found = np.where(np.isfinite(found), found, np.inf).reshape(models.shape[:2])
        return np.where(np.isfinite(models).all(axis=2), found, np.inf)

    def evidence(self, starts: Starts) -> Evidence:
        """Told by the targets; a target that does not tell has no evidence of its own."""
        many = len(route(self.learner).names(self.learner))
        asked = [
            self._target(
                i,
                {"what": "offers"},
                {name: _of(array, t, self.copies) for name, array in starts.items()},
            )
            for t, i in enumerate(self._mine.tolist())
        ]
        losses, weight = np.full((self.targets, many), np.inf), np.zeros(self.targets)
        for t, told in enumerate(self._ask(asked)):
            said, judged = (
                numbers(told.get("losses"), (many,), most=1e100),
                numbers(told.get("weight"), (1,))[0],
            )
            if np.isfinite(said).all() and (said >= 0).all() and judged >= 0:
                losses[t], weight[t] = said, judged
            if judged == 0:
                self._homes.foldless.add(self._homes.ids[int(self._mine[t])])
        return Evidence(losses, weight, dict(starts))

    def _probe(
        self, proposer: Any, models: Array
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        if not isinstance(proposer, Toward):
            return {
                "what": "steps",
                "step": float(proposer.step_size),
                "steps": proposer.steps,
            }, {"models": models}
        refit = proposer.refit(self.learner.intercept)
        labels = np.stack([refit.ask(self.learner, model) for model in models])
        return {"what": "refit", "weight": float(refit.public_weight or 0.0)}, {
            "points": refit.public,
            "labels": labels,
        }

    def _own(
        self,
        head: Mapping[str, Any],
        arrays: Mapping[str, Any],
        what: str,
        shape: Any,
        missing: float,
    ) -> Array:
        told = self._ask(
            [
                self._target(i, {"what": "own", **head}, arrays)
                for i in self._mine.tolist()
            ]
        )
        found = np.concatenate([numbers(each.get(what), shape) for each in told])
        return np.asarray(np.where(np.isfinite(found) & (found >= 0), found, missing))

    def _question(
        self, to: int, head: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> Question:
        return Question(
            to, {**self._about, **head}, {"variance": self._variance, **arrays}
        )

    def _target(
        self, to: int, head: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> Question:
        return self._question(to, {**head, "ordered": self._homes.ordered}, arrays)

    def _name(self, copy: int) -> str:
        return self._homes.ids[int(self._mine[copy // self.copies])]


def numbers(array: Any, shape: tuple[int, ...], most: float = LARGE) -> Array:
    """What a device told, if it is numbers of this shape; NaN where it is nothing, or absurd."""
    if array is None or array.dtype != np.float64 or array.shape != shape:
        return np.full(shape, np.nan)
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(array) <= most, array, np.nan)


def _of(array: Array, t: int, copies: int) -> Array:
    """What target `t` of a part is told of a start."""
    return array[t * copies : (t + 1) * copies] if array.ndim == 2 else array
