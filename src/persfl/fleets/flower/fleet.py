"""A fleet whose devices are elsewhere: rounds as messages.

A round is one message to each peer that is asked, with the probes of all targets that ask it, and one message to each target, with
the answers to score. What a target adopts travels with its next message. The coordinator relays: rows and scoring stay at home.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from persfl.checks import real
from persfl.devices import position, stranger
from persfl.errors import InputError, NotReady
from persfl.fleets.flower.device import Device, adopted
from persfl.fleets.flower.judging import FIELDS
from persfl.fleets.flower.post import Failed, Post
from persfl.fleets.flower.roster import Roster
from persfl.fleets.home import diverged
from persfl.types import Answers, Array, Choice, IntArray
from persfl.wire import Terms, WireError, model_from, model_to, nested, pack, probe_from, probe_to, unpack, within

REFUSALS = ("models", "steps", "trees", "rows", "questions", "questions_per_target", "target", "sums")


class Away(NotReady):
    """Too few devices have answered for too long; everything is kept, and the run can go on later."""


class Adoption(NamedTuple):
    """What a target was told to adopt after a round; `anew` replaces its model whatever it was."""

    round: int
    stay: float
    weights: tuple[float, ...]
    pieces: tuple[Any, ...]
    anew: bool = False


class FlowerFleet:
    """Devices behind a `Post`, by their ids in sorted order; `home` are devices that live in this process (target at home).

    `targets`: ids, by default those at home, or else all. A round waits `deadline` seconds for answers and goes on with those who
    answered, if they are at least the share `quorum` of those asked; else it asks again, and after `patience` seconds raises
    `Away`. `need` new rows on that share of the devices before a round starts (rows that keep arriving). `start` is None (what the
    terms say) or a model per target. `state` is what `state()` gave, to go on after an interruption.
    """

    def __init__(
        self,
        post: Post,
        terms: Terms,
        *,
        ids: Sequence[str],
        targets: Sequence[Hashable] | None = None,
        home: Mapping[str, Device] | None = None,
        run: str = "run",
        deadline: float = 60.0,
        quorum: float = 0.5,
        patience: float = 600.0,
        need: int = 0,
        start: Any = None,
        state: bytes | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.post, self.terms, self.home, self.run, self.need = post, terms, dict(home or {}), run, need
        self.deadline, self.patience = real("deadline", deadline, above=0), real("patience", patience, least=0)
        self.quorum = real("quorum", quorum, least=0, most=1)
        self.ids = sorted({*ids, *self.home})
        self.n = len(self.ids)
        chosen = targets if targets is not None else sorted(self.home) or self.ids
        self.targets: IntArray = np.array([position(self.ids, name) for name in chosen], dtype=np.int64)
        if len(set(self.targets.tolist())) < len(self.targets):
            raise InputError("targets must differ. Got a device twice.")
        self.learner, self.proposer = terms.learner(), terms.proposer()
        self.roster, self._scoring = Roster(), Roster()  # as peers, and as targets
        self.rows: dict[str, int] = {}
        self.new: dict[str, int] = {}
        self._say = say or (lambda _: None)
        self._eager = terms.local is not None or getattr(self.learner, "renews", False)
        self._ask = secrets.randbelow(2**40)  # not a number that an earlier run used
        T = len(self.targets)
        self._probes: list[Any] = [None] * T
        self._models: list[Any] = [None] * T
        self._pending: list[list[Adoption]] = [[] for _ in range(T)]
        self._own = np.full(T, np.inf)
        self._proposals: dict[tuple[int, int], Any] = {}
        self._r, self._quiet, self._odd = 0, 0, 0
        self._counted_rows = -1
        self.own_seconds = 0.0  # spent by persfl here, and at the slowest device of each exchange
        self._slowest = 0.0
        if state is not None:
            self._restore(state)
        elif start is not None:
            self._hand_in(start)

    @property
    def models(self) -> Any:
        """One model per target as far as they were seen here: None where a target still has the one it made at home."""
        if all(isinstance(model, np.ndarray) for model in self._models):
            return np.stack(self._models)
        return list(self._models)

    # The loop

    def observe(self, r: int) -> None:
        """Wait for new rows, where the run needs some; get the probes of targets that have not begun."""
        if self.need and self._counted_rows < r:
            self._await_rows(r)
            self._counted_rows = r
        self._begin(r)

    def probe(self, peers: IntArray, r: int) -> Answers:
        """Ask every peer, have every answer scored by its target."""
        if peers.max(initial=-1) >= self.n:
            raise stranger(int(peers.max()), self.n)
        self._r = r
        for waiting in self._pending:  # models that were handed in are those before the first round that is run
            if waiting and waiting[0].anew and waiting[0].round < 0:
                waiting[0] = waiting[0]._replace(round=r - 1)
        self._begin(r)
        self._proposals, self._odd = {}, 0
        self._collect(peers, r)
        losses, lengths = np.full((len(peers), peers.shape[1] + 1), np.inf), np.full(peers.shape, np.nan)
        self._score(peers, r, losses, lengths)
        return self._judge(Answers(losses, lengths), peers, r)

    def adopt(self, choice: Choice) -> None:
        """Tell every target what it adopts: with its next message, or now where only the target can know what follows."""
        for t in range(len(self.targets)):
            taken = [(w, p) for w, p in zip(choice.weights[t].tolist(), choice.peers[t].tolist(), strict=True) if w > 0]
            pieces = tuple(self._proposals[t, peer] for _, peer in taken)
            told = Adoption(self._r, float(choice.stay[t]), tuple(w for w, _ in taken), pieces)
            self._pending[t].append(told)
            if self._models[t] is not None or told.stay == 0:
                self._models[t] = adopted(self.learner, self._models[t], pieces, told.weights, told.stay)
            if self._eager:
                self._probes[t] = None
            elif taken:
                self._probes[t] = self.proposer.ask(self.learner, self._models[t])
        if self._eager:
            self._begin(self._r)

    def finish(self) -> list[str]:
        """Tell every target its last adoption; the ids of those that could not be told (they keep an older model)."""
        self._start([t for t in range(len(self.targets)) if self._pending[t]], self._r, probe=False)
        return [self._name(t) for t in range(len(self.targets)) if self._pending[t]]

    def judged(self) -> dict[int, dict[str, Any]]:
        """What targets tell of the rows that they held back, by position among the devices (see `judging`)."""
        found = {}
        r = self._r
        self._number()
        letters = {
            self._name(t): ("score", self._letter(r, int(self.targets[t]), {"count": 0, "judge": True}, {}, t))
            for t in range(len(self.targets))
        }
        replies = self._exchange(letters)
        for t in range(len(self.targets)):
            try:
                _, arrays = self._opened(self._name(t), replies[self._name(t)], "score", r)
            except _Lost:
                continue
            self._pending[t] = []
            told = {name: arrays.get(name) for name in ("judged", "errors", "mistakes")}
            sizes = {"judged": FIELDS, "errors": 2, "mistakes": 2}
            if all(_are(told[name], size) and np.isfinite(np.asarray(told[name])).all() for name, size in sizes.items()):
                found[int(self.targets[t])] = told
        return found

    # Asking

    def _collect(self, peers: IntArray, r: int) -> None:
        """Fill `_proposals`, in several goes where too few answer."""
        asked: dict[int, list[int]] = {}
        for t, s in np.argwhere(peers >= 0).tolist():
            peer = int(peers[t, s])
            if self._probes[t] is None:
                continue
            if not self.roster.due(self.ids[peer], r):
                self.roster.count(self.ids[peer], "rested")
                continue
            asked.setdefault(peer, []).append(t)
        begin, left = time.monotonic(), dict(asked)
        while left:
            good = self._answers(left, r)
            left = {peer: who for peer, who in left.items() if peer not in good}
            done = len(asked) - len(left)
            if done and done >= math.ceil(self.quorum * len(asked)):
                return
            waited = time.monotonic() - begin
            if waited > self.patience:
                raise Away(
                    f"round {r}: {done} of {len(asked)} devices answered within {waited:.0f} s, and the quorum is "
                    f"{self.quorum:g} of them. Everything is kept: go on when they are back."
                )
            self._say(f"round {r}: {done} of {len(asked)} devices have answered; waiting for more")
            time.sleep(min(1.0, self.patience))

    def _answers(self, asked: Mapping[int, Sequence[int]], r: int) -> set[int]:
        """One go: who answered all that was asked of it."""
        begin = time.monotonic()
        self._number()
        letters = {}
        for peer, who in asked.items():
            arrays = {"targets": self.targets[list(who)]}
            for i, t in enumerate(who):
                arrays |= nested(f"q{i}", probe_to(self.proposer, self._probes[t]))
            names = [self._name(t) for t in who]
            letters[self.ids[peer]] = ("answer", self._letter(r, peer, {"names": names}, arrays))
            self.roster.count(self.ids[peer], "asked", len(who))
        self.own_seconds += time.monotonic() - begin
        good = set()
        found = self._exchange(letters)
        begin = time.monotonic()
        for peer, who in asked.items():
            try:
                head, arrays = self._opened(self.ids[peer], found[self.ids[peer]], "answer", r)
            except _Lost as lost:
                self.roster.failed(self.ids[peer], r, lost.how, len(who))
                continue
            self._note(self.ids[peer], head)
            codes = head.get("codes")
            if not isinstance(codes, list) or len(codes) != len(who):
                self.roster.failed(self.ids[peer], r, "format", len(who))
                continue
            usable = 0
            for i, (t, code) in enumerate(zip(who, codes, strict=True)):
                try:
                    if code != "ok":
                        raise _Lost(_way(code))
                    part = within(f"p{i}", arrays)
                    self._proposals[t, peer] = model_from(self.learner, part, self.terms.features, self.terms.classes)
                    usable += 1
                except _Lost as lost:
                    self.roster.count(self.ids[peer], lost.how)
                except WireError:
                    self.roster.count(self.ids[peer], "format")
                    self._odd += 1
            self.roster.count(self.ids[peer], "answered", usable)
            if usable:
                self.roster.answered(self.ids[peer], r)
            else:
                self.roster.failed(self.ids[peer], r, "refused", 0)
            good.add(peer)
        self.own_seconds += time.monotonic() - begin
        return good

    def _score(self, peers: IntArray, r: int, losses: Array, lengths: Array) -> None:
        begin, letters, shown = time.monotonic(), {}, {}
        self._number()
        for t in range(len(self.targets)):
            if self._probes[t] is None or not self._scoring.due(self._name(t), r):
                continue
            columns = [s for s in range(peers.shape[1]) if (t, int(peers[t, s])) in self._proposals]
            arrays: dict[str, Any] = {}
            for i, s in enumerate(columns):
                arrays |= nested(f"p{i}", model_to(self.learner, self._proposals[t, int(peers[t, s])]))
            letters[self._name(t)] = ("score", self._letter(r, int(self.targets[t]), {"count": len(columns)}, arrays, t))
            shown[t] = columns
        self.own_seconds += time.monotonic() - begin
        found = self._exchange(letters)
        begin = time.monotonic()
        losses[:, 0] = self._own
        for t, columns in shown.items():
            name = self._name(t)
            try:
                head, arrays = self._opened(name, found[name], "score", r)
                own, others, far = arrays.get("own"), arrays.get("losses"), arrays.get("lengths")
                if not (_are(own, 1) and _are(others, len(columns)) and _are(far, len(columns))):
                    raise _Lost("format")
            except _Lost as lost:
                self._missed(t, r, lost)
                continue
            self._note(name, head)
            self._scoring.answered(name, r)
            self._pending[t] = []
            self._own[t] = losses[t, 0] = float(own[0])  # type: ignore[index]
            for i, s in enumerate(columns):
                losses[t, s + 1], lengths[t, s] = others[i], far[i]  # type: ignore[index]
        self.own_seconds += time.monotonic() - begin

    def _begin(self, r: int) -> None:
        """Probes of the targets whose probe is not known here."""
        unknown = [t for t in range(len(self.targets)) if self._probes[t] is None]
        self._start([t for t in unknown if self._scoring.due(self._name(t), r)], r, probe=True)
        if all(probe is None for probe in self._probes):
            raise Away(f"round {r}: no target is there to ask anybody. Everything is kept: go on when one is back.")

    def _start(self, which: Sequence[int], r: int, *, probe: bool) -> None:
        if not which:
            return
        begin, quorum = time.monotonic(), math.ceil(self.quorum * len(self.targets))
        left = list(which)
        while True:
            self._number()
            letters = {self._name(t): ("adopt", self._letter(r, int(self.targets[t]), {"probe": probe}, {}, t)) for t in left}
            found = self._exchange(letters)
            for t in list(left):
                name = self._name(t)
                try:
                    head, arrays = self._opened(name, found[name], "adopt", r)
                    if probe:
                        part = within("probe", arrays)
                        self._probes[t] = probe_from(self.proposer, self.learner, part, self.terms.features, self.terms.classes)
                        if isinstance(self._probes[t], np.ndarray) and hasattr(self.learner, "grad") and self.terms.public is None:
                            self._models[t] = self._probes[t]
                except (_Lost, WireError) as lost:
                    self._missed(t, r, lost if isinstance(lost, _Lost) else _Lost("format"))
                    if getattr(lost, "code", "") in REFUSALS:
                        left.remove(t)
                    continue
                self._note(name, head)
                self._scoring.answered(name, r)
                self._pending[t] = []
                left.remove(t)
            known = len(self.targets) - sum(probe is None for probe in self._probes) if probe else len(self.targets) - len(left)
            if not left or known >= max(quorum, 1) or time.monotonic() - begin > self.patience:
                return
            self._say(f"round {r}: {known} of {len(self.targets)} targets are there; waiting for more")
            time.sleep(min(1.0, self.patience))

    def _missed(self, t: int, r: int, lost: _Lost) -> None:
        """A target did not do its part: it is counted, and approached less often if that goes on."""
        name = self._name(t)
        self.roster.count(name, lost.how)
        if lost.code == "state":
            self._recover(t, r)
        else:
            self._scoring.failed(name, r, lost.how)

    def _recover(self, t: int, r: int) -> None:
        """A target that has lost its model gets back the one that was seen here last, if any."""
        if self._models[t] is not None:
            self._pending[t] = [Adoption(r - 1, 0.0, (1.0,), (self._models[t],), anew=True)]

    def _hand_in(self, start: Any) -> None:
        if len(start) != len(self.targets):
            raise InputError(f"start must hold one model per target ({len(self.targets)}). Got {len(start)}.")
        for t, given in enumerate(start):
            model = model_from(self.learner, model_to(self.learner, given), self.terms.features, self.terms.classes)
            self._models[t] = model
            self._pending[t] = [Adoption(-1, 0.0, (1.0,), (model,), anew=True)]
            self._probes[t] = self.proposer.ask(self.learner, model)

    def _await_rows(self, r: int) -> None:
        """Rows keep arriving: wait until enough devices say that they have enough new ones."""
        begin = time.monotonic()
        names = list(self.ids)
        before = dict(self.rows)
        while True:
            self._number()
            found = self._exchange({name: ("describe", self._letter(r, 0, {}, {})) for name in names})
            ready = 0
            for name in names:
                try:
                    head, _ = self._opened(name, found[name], "describe", r)
                except _Lost:
                    continue
                ready += int(head["rows"]) - before.get(name, 0) >= self.need if isinstance(head.get("rows"), int) else 0
            if ready and ready >= math.ceil(self.quorum * len(names)):
                return
            if time.monotonic() - begin > self.patience:
                raise NotReady(f"round {r} needs {self.need} new rows on {self.quorum:.0%} of the devices; {ready} have them.")
            time.sleep(min(1.0, self.patience))

    # Letters

    def _name(self, t: int) -> str:
        return self.ids[int(self.targets[t])]

    def _letter(self, r: int, me: int, head: Mapping[str, Any], arrays: Mapping[str, Any], t: int | None = None) -> bytes:
        told, more = self.terms.to_wire()
        adoptions = [] if t is None else self._pending[t]
        for i, one in enumerate(adoptions):
            for k, piece in enumerate(one.pieces):
                more |= nested(f"a{i}.{k}", model_to(self.learner, piece))
        told["adoptions"] = [{"round": a.round, "stay": a.stay, "weights": list(a.weights), "set": a.anew} for a in adoptions]
        return pack({"run": self.run, "round": r, "ask": self._ask, "me": me} | told | dict(head), {**more, **arrays})

    def _exchange(self, letters: Mapping[str, tuple[str, bytes]]) -> dict[str, bytes | Failed]:
        """Send letters, all with the same number, which a reply must repeat: one to an earlier question is stale."""
        self.own_seconds, self._slowest = self.own_seconds + self._slowest, 0.0
        found: dict[str, bytes | Failed] = {}
        begin = time.monotonic()
        for name, (kind, body) in letters.items():
            if name in self.home:
                found[name] = self.home[name].reply(kind, body)
        self.own_seconds += time.monotonic() - begin
        return found | self.post.exchange({n: letter for n, letter in letters.items() if n not in self.home}, self.deadline)

    def _number(self) -> None:
        """A new number for the letters to come."""
        self._ask += 1

    def _opened(self, name: str, reply: bytes | Failed, kind: str, r: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """A reply that is what it should be: from this device, to this question, of this round of this run."""
        if isinstance(reply, Failed):
            raise _Lost(reply.how)
        try:
            head, arrays = unpack(reply)
        except WireError:
            raise _Lost("format") from None
        if head.get("code") != "ok":
            raise _Lost(_way(head.get("code")), str(head.get("code"))[:40])
        about = (head.get("device"), head.get("run"), head.get("round"), head.get("kind"), head.get("ask"))
        if about != (name, self.run, r, kind, self._ask):
            raise _Lost("stale")
        return head, arrays

    def _note(self, name: str, head: Mapping[str, Any]) -> None:
        seconds = head.get("seconds")
        if isinstance(seconds, float) and 0 <= seconds < 1e6:
            self._slowest = max(self._slowest, seconds)
        for kept, key in ((self.rows, "rows"), (self.new, "new")):
            if isinstance(head.get(key), int) and 0 <= head[key] < 2**53:
                kept[name] = head[key]

    def _judge(self, answers: Answers, peers: IntArray, r: int) -> Answers:
        losses = np.where(np.isnan(answers.losses), np.inf, answers.losses)
        lost = ~np.isfinite(losses[:, 0]) & np.array([model is not None for model in self._models]) & ~np.isinf(self._own)
        usable = np.isfinite(losses[:, 1:]).any()
        if usable:
            self._quiet = 0
        elif self._proposals or self._odd:  # answers came, and none of all could be used
            self._quiet += 1
        if lost.any() or self._quiet >= 5:
            raise diverged(r, self._name(int(np.argmax(lost))), self.proposer.advice())
        return Answers(losses, answers.lengths)

    # Going on after an interruption

    def state(self) -> bytes:
        """Everything a new FlowerFleet needs to go on exactly here."""
        arrays: dict[str, Any] = {"own": self._own}
        heads: list[dict[str, Any]] = []
        for t in range(len(self.targets)):
            if self._probes[t] is not None:
                arrays |= nested(f"t{t}.probe", probe_to(self.proposer, self._probes[t]))
            if self._models[t] is not None:
                arrays |= nested(f"t{t}.model", model_to(self.learner, self._models[t]))
            for i, one in enumerate(self._pending[t]):
                for k, piece in enumerate(one.pieces):
                    arrays |= nested(f"t{t}.a{i}.{k}", model_to(self.learner, piece))
            heads.append(
                {
                    "probe": self._probes[t] is not None,
                    "model": self._models[t] is not None,
                    "pending": [[a.round, a.stay, list(a.weights), a.anew] for a in self._pending[t]],
                }
            )
        told = {
            "targets": heads,
            "roster": self.roster.to_plain(),
            "scoring": self._scoring.to_plain(),
            "rows": self.rows,
            "quiet": self._quiet,
        }
        return pack(told, arrays)

    def _restore(self, body: bytes) -> None:
        head, arrays = unpack(body)

        def model(part: Mapping[str, Any]) -> Any:
            return model_from(self.learner, part, self.terms.features, self.terms.classes)

        self._own = np.array(arrays["own"])
        for t, told in enumerate(head["targets"]):
            inner = within(f"t{t}", arrays)
            if told["probe"]:
                part = within("probe", inner)
                self._probes[t] = probe_from(self.proposer, self.learner, part, self.terms.features, self.terms.classes)
            if told["model"]:
                self._models[t] = model(within("model", inner))
            for i, (r, stay, weights, anew) in enumerate(told["pending"]):
                pieces = tuple(model(within(f"a{i}.{k}", inner)) for k in range(len(weights)))
                self._pending[t].append(Adoption(r, stay, tuple(weights), pieces, anew))
        self.roster, self._scoring = Roster.from_plain(head["roster"]), Roster.from_plain(head["scoring"])
        self.rows = {str(k): int(v) for k, v in head["rows"].items()}
        self._quiet = int(head["quiet"])


class _Lost(Exception):
    """A reply that cannot be used, and in which way."""

    def __init__(self, how: str, code: str = "") -> None:
        super().__init__(how)
        self.how, self.code = how, code


def _way(code: Any) -> str:
    return "refused" if code in REFUSALS else "format" if code == "format" else "failed"


def _are(array: Any, count: int) -> bool:
    return array is not None and array.dtype == np.float64 and array.shape == (count,)
