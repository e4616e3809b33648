"""A fleet whose devices are elsewhere: rounds as messages.

A round is one message to each peer that is asked, with the probes of all targets that ask it, and
one message to each target, with the answers to score. What a target adopts travels with its next
message. The coordinator relays: rows and scoring stay at home.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from persfl.checks import real
from persfl.devices import position, stranger
from persfl.errors import InputError, NotReady
from persfl.federation.device import Device
from persfl.federation.holdout import SIZES, sound
from persfl.federation.letters import REFUSALS, Letters, Lost, ends, way, why
from persfl.federation.post import Post
from persfl.federation.roster import Roster
from persfl.federation.target_state import Adoption, Standing
from persfl.fleets.kept_steps import Steps, as_vector, vectors
from persfl.fleets.rows import diverged
from persfl.types import Answers, Array, Choice, IntArray, Kept
from persfl.wire import (
    LARGEST,
    Terms,
    WireError,
    model_from,
    model_to,
    nested,
    pack,
    probe_to,
    sends_model,
    unpack,
    within,
)


class Away(NotReady):
    """Too few devices have answered for too long; everything is kept, and the run can go on
    later.
    """


class FlowerFleet:
    """Devices behind a `Post`, by their ids in sorted order; `home` are devices that live in this
    process (target at home).

    `targets`: ids, by default those at home, or else all. A round waits `deadline` seconds for
    answers and goes on with those who answered, if they are at least the share `quorum` of those
    asked; else it asks again, and after `patience` seconds raises
    `Away`. `need` new rows on that share of the devices before a round starts (rows that keep
    arriving). `start` is None (what the terms say) or a model per target. `state` is what `state()`
    gave, to go on after an interruption.
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
        say: Callable[[str, Sequence[str]], None] | None = None,
    ) -> None:
        self.terms, self.need, self.patience = (
            terms,
            need,
            real("patience", patience, least=0),
        )
        self.quorum = real("quorum", quorum, least=0, most=1)
        self.letters = Letters(
            post,
            terms,
            run=run,
            home=home or {},
            deadline=real("deadline", deadline, above=0),
        )
        self.ids = sorted({*ids, *self.letters.home})
        self.n = len(self.ids)
        chosen = (
            targets if targets is not None else sorted(self.letters.home) or self.ids
        )
        self.targets: IntArray = np.array(
            [position(self.ids, name) for name in chosen], dtype=np.int64
        )
        if len(set(self.targets.tolist())) < len(self.targets):
            raise InputError("targets must differ. Got a device twice.")
        self.learner, self.proposer = terms.learner(), terms.proposer()
        self.roster, self._scoring = Roster(), Roster()  # as peers, and as targets
        self.standing = Standing(terms, len(self.targets))
        self._say = say or (lambda where, missing: None)
        self._proposals: dict[tuple[int, int], Any] = {}
        self._steps: Steps | None = None  # where an adopter remembers them
        # targets whose model was not known when steps were kept last
        self._unseen: list[int] = []
        self._stepped: dict[int, Any] = {}  # where targets' own steps would take them
        self._lengths: dict[int, float] = {}  # and how far
        self._r, self._quiet, self._odd, self._waited_for = 0, 0, 0, -1
        if state is not None:
            self._restore(state)
        elif start is not None:
            self.standing.hand_in(start)

    post = property(lambda self: self.letters.post)
    home = property(lambda self: self.letters.home)
    rows = property(lambda self: self.letters.rows)
    new = property(lambda self: self.letters.new)

    @property
    def models(self) -> Any:
        """One model per target as far as they were seen here: None where a target still has the
        one it made at home.
        """
        known = self.standing.models
        return (
            np.stack(known)
            if all(isinstance(model, np.ndarray) for model in known)
            else list(known)
        )

    # The loop

    def observe(self, r: int) -> None:
        """Wait for new rows, where the run needs some; get the probes of targets that have not
        begun.
        """
        if self.need and self._waited_for < r:
            self._await_rows(r)
            self._waited_for = r
        self._begin(r)

    def probe(self, peers: IntArray, r: int) -> Answers:
        """Ask every peer, have every answer scored by its target."""
        if peers.max(initial=-1) >= self.n:
            raise stranger(int(peers.max()), self.n)
        self._r = r
        self.standing.before(r)
        self._begin(r)
        self._proposals, self._stepped, self._odd = {}, {}, 0
        self._lengths = {}
        self._collect(peers, r)
        losses, lengths = (
            np.full((len(peers), peers.shape[1] + 1), np.inf),
            np.full(peers.shape, np.nan),
        )
        self._score(peers, r, losses, lengths)
        return self._judge(Answers(losses, lengths), peers, r)

    def keep(self, peers: IntArray, r: int) -> Kept:
        """Remember the steps of the peers just asked, and every target's own, which it tells
        with its scores.
        """
        models = self._vectors()
        if self._steps is None:
            self._steps = Steps(targets=self.targets, start=models)
            self._score(
                np.full((len(self.targets), 0), -1),
                r,
                np.empty((len(self.targets), 1)),
                np.empty((len(self.targets), 0)),
            )
        nothing = np.full(models.shape[1], np.nan)
        answers = [
            [as_vector(self._proposals.get((t, int(p))), nothing) for p in row]
            for t, row in enumerate(peers)
        ]
        # A target that is away keeps the step it would have taken last.
        own = [
            self._stepped.get(t, models[t] + self._steps.own[1][t])
            for t in range(len(models))
        ]
        return self._steps.keep(
            peers, models, np.array(answers).reshape(*peers.shape, -1), np.stack(own)
        )

    def own_lengths(self, r: int) -> Array:
        """(T,) how far their own rows would take the targets just asked; NaN where none was told.

        A target tells it with its scores. Whoever lies about it bends the guard of nobody else.
        """
        count = len(self.targets)
        told = self._lengths if r == self._r else {}
        found = np.array([told.get(t, np.nan) for t in range(count)], dtype=np.float64)
        return np.where(np.isfinite(found) & (found >= 0), found, np.nan)

    def _vectors(self) -> Array:
        """(T, size) models for remembered steps; a target that has not been seen yet has none,
        and starts when it comes.
        """
        absent = [t for t, model in enumerate(self.standing.models) if model is None]
        if len(absent) == len(self.targets):
            return vectors(self.models)  # says what is wrong
        nothing = np.zeros(
            self.learner.size(self.terms.features),
            dtype=getattr(self.learner, "dtype", "float64"),
        )
        models = vectors(
            [nothing if model is None else model for model in self.standing.models]
        )
        if self._steps is not None and self._unseen:
            come = [t for t in self._unseen if t not in absent]
            self._steps.start[come] = models[come]
        self._unseen = absent
        return models

    @property
    def kept(self) -> dict[str, Any] | None:
        """The kept steps as plain arrays, for going on later; None where nothing was kept."""
        return None if self._steps is None else self._steps.to_arrays()

    @kept.setter
    def kept(self, arrays: dict[str, Any] | None) -> None:
        size = self.learner.size(self.terms.features)
        self._steps = (
            None if arrays is None else Steps.from_arrays(arrays, self.targets, size)
        )
        self._unseen = [
            t for t, model in enumerate(self.standing.models) if model is None
        ]

    def adopt(self, choice: Choice) -> None:
        """Tell every target what it adopts: with its next message, or now where only the target
        can know what follows.
        """
        if self._steps is not None:
            models = self._vectors()
            moved = self._steps.moved_by(models, choice).astype(models.dtype)
            for t, model in enumerate(moved):
                if t in self._unseen:
                    continue
                self.standing.adopt(t, Adoption(self._r, 0.0, (1.0,), (model,)))
            if self.standing.eager:
                self._begin(self._r)
            return
        for t in range(len(self.targets)):
            taken = [
                (w, p)
                for w, p in zip(
                    choice.weights[t].tolist(), choice.peers[t].tolist(), strict=True
                )
                if w > 0
            ]
            pieces = tuple(self._proposals[t, peer] for _, peer in taken)
            self.standing.adopt(
                t,
                Adoption(
                    self._r, float(choice.stay[t]), tuple(w for w, _ in taken), pieces
                ),
            )
        if self.standing.eager:
            self._begin(self._r)

    def finish(self) -> list[str]:
        """Tell every target its last adoption; the ids of those that could not be told (they
        keep an older model).
        """
        self._start(
            [t for t in range(len(self.targets)) if self.standing.pending[t]],
            self._r,
            probe=False,
        )
        return [
            self._name(t) for t in range(len(self.targets)) if self.standing.pending[t]
        ]

    def judged(self) -> dict[int, dict[str, Any]]:
        """What targets tell of the rows that they held back, by position among the devices (see
        `judging`).
        """
        found = {}
        r = self._r
        self.letters.next()
        letters = {
            self._name(t): ("score", self._to(t, r, {"count": 0, "judge": True}))
            for t in range(len(self.targets))
        }
        replies = self.letters.exchange(letters)
        for t in range(len(self.targets)):
            try:
                _, arrays = self.letters.opened(
                    self._name(t), replies[self._name(t)], "score", r
                )
            except Lost:
                continue
            self.standing.pending[t] = []
            told = {name: arrays.get(name) for name in SIZES}
            if sound(told):
                found[int(self.targets[t])] = told
        return found

    # Asking

    def _collect(self, peers: IntArray, r: int) -> None:
        """Fill `_proposals`, in several goes where too few answer."""
        asked: dict[int, list[int]] = {}
        for t, s in np.argwhere(peers >= 0).tolist():
            peer = int(peers[t, s])
            if self.standing.probes[t] is None:
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
                    f"round {r}: {done} of {len(asked)} devices answered within {waited:.0f} s, and"
                    f" the quorum is {self.quorum:g} of them. Everything is kept: go on when they"
                    f" are back.{self._at_limits()}"
                )
            self._say(f"round {r + 1}", [self.ids[peer] for peer in left])
            time.sleep(min(1.0, self.patience))

    def _answers(self, asked: Mapping[int, Sequence[int]], r: int) -> set[int]:
        """One go: who answered all that was asked of it."""
        begin = time.monotonic()
        self.letters.next()
        letters = {}
        for peer, who in asked.items():
            arrays = {"targets": self.targets[list(who)]}
            for i, t in enumerate(who):
                arrays |= nested(
                    f"q{i}",
                    probe_to(self.proposer, self.learner, self.standing.probes[t]),
                )
            names = [self._name(t) for t in who]
            letters[self.ids[peer]] = (
                "answer",
                self.letters.letter(r, peer, {"names": names}, arrays),
            )
            self.roster.count(self.ids[peer], "asked", len(who))
        self.letters.own_seconds += time.monotonic() - begin
        good = set()
        found = self.letters.exchange(letters)
        begin = time.monotonic()
        for peer, who in asked.items():
            try:
                head, arrays = self.letters.opened(
                    self.ids[peer], found[self.ids[peer]], "answer", r
                )
            except Lost as lost:
                self.roster.failed(self.ids[peer], r, lost.how, len(who))
                self._limited(self.ids[peer], lost.code)
                # it is there, and asking again would not help
                if lost.how == "refused":
                    good.add(peer)
                continue
            codes = head.get("codes")
            if not isinstance(codes, list) or len(codes) != len(who):
                self.roster.failed(self.ids[peer], r, "format", len(who))
                continue
            usable = 0
            for i, (t, code) in enumerate(zip(who, codes, strict=True)):
                try:
                    if code != "ok":
                        self._limited(self.ids[peer], code)
                        raise Lost(way(code))
                    part = within(f"p{i}", arrays)
                    self._proposals[t, peer] = model_from(
                        self.learner, part, self.terms.features, self.terms.classes
                    )
                    usable += 1
                except Lost as lost:
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
        self.letters.own_seconds += time.monotonic() - begin
        return good

    def _score(self, peers: IntArray, r: int, losses: Array, lengths: Array) -> None:
        begin, letters, shown = time.monotonic(), {}, {}
        moves = sends_model(self.proposer, self.learner)
        self.letters.next()
        for t in range(len(self.targets)):
            if self.standing.probes[t] is None or not self._scoring.due(
                self._name(t), r
            ):
                continue
            columns = [
                s
                for s in range(peers.shape[1])
                if (t, int(peers[t, s])) in self._proposals
            ]
            arrays: dict[str, Any] = {}
            for i, s in enumerate(columns):
                arrays |= nested(
                    f"p{i}",
                    model_to(self.learner, self._proposals[t, int(peers[t, s])]),
                )
            head = {
                "count": len(columns),
                "step": self._steps is not None,
                "length": moves,
            }
            letters[self._name(t)] = ("score", self._to(t, r, head, arrays))
            shown[t] = columns
        self.letters.own_seconds += time.monotonic() - begin
        found = self.letters.exchange(letters)
        begin = time.monotonic()
        losses[:, 0] = self.standing.own
        for t, columns in shown.items():
            name = self._name(t)
            try:
                _, arrays = self.letters.opened(name, found[name], "score", r)
                own, others, far = (
                    arrays.get("own"),
                    arrays.get("losses"),
                    arrays.get("lengths"),
                )
                if not (
                    _are(own, 1)
                    and _are(others, len(columns))
                    and _are(far, len(columns))
                ):
                    raise Lost("format")
                if np.isnan(own).any() or np.isneginf(own).any():  # type: ignore[arg-type]
                    # no loss: it costs this target its round, not everybody the run
                    raise Lost("format")
            except Lost as lost:
                self._missed(t, r, lost)
                continue
            self._scoring.answered(name, r)
            self.standing.pending[t] = []
            if "step.vector" in arrays:
                with contextlib.suppress(WireError):
                    self._stepped[t] = model_from(
                        self.learner,
                        within("step", arrays),
                        self.terms.features,
                        self.terms.classes,
                    )
            if _are(arrays.get("length"), 1):
                self._lengths[t] = float(arrays["length"][0])
            self.standing.own[t] = losses[t, 0] = float(own[0])  # type: ignore[index]
            for i, s in enumerate(columns):
                losses[t, s + 1], lengths[t, s] = others[i], far[i]  # type: ignore[index]
        self.letters.own_seconds += time.monotonic() - begin

    def _begin(self, r: int) -> None:
        """Probes of the targets whose probe is not known here."""
        unknown = [
            t for t in range(len(self.targets)) if self.standing.probes[t] is None
        ]
        self._start(
            [t for t in unknown if self._scoring.due(self._name(t), r)], r, probe=True
        )
        if all(probe is None for probe in self.standing.probes):
            raise Away(
                f"round {r}: no target is there to ask anybody. Everything is kept: go on when one"
                f" is back.{self._at_limits()}"
            )

    def _start(self, which: Sequence[int], r: int, *, probe: bool) -> None:
        if not which:
            return
        begin, quorum = time.monotonic(), math.ceil(self.quorum * len(self.targets))
        left = list(which)
        while True:
            self.letters.next()
            letters = {
                self._name(t): ("adopt", self._to(t, r, {"probe": probe})) for t in left
            }
            found = self.letters.exchange(letters)
            for t in list(left):
                name = self._name(t)
                try:
                    _, arrays = self.letters.opened(name, found[name], "adopt", r)
                    if probe:
                        self.standing.tell(t, within("probe", arrays))
                except (Lost, WireError) as lost:
                    self._missed(
                        t, r, lost if isinstance(lost, Lost) else Lost("format")
                    )
                    if getattr(lost, "code", "") in REFUSALS:
                        left.remove(t)
                    continue
                self._scoring.answered(name, r)
                self.standing.pending[t] = []
                left.remove(t)
            known = (
                len(self.targets) - sum(probe is None for probe in self.standing.probes)
                if probe
                else len(self.targets) - len(left)
            )
            if (
                not left
                or known >= max(quorum, 1)
                or time.monotonic() - begin > self.patience
            ):
                return
            self._say(f"round {r + 1}", [self._name(t) for t in left])
            time.sleep(min(1.0, self.patience))

    def _missed(self, t: int, r: int, lost: Lost) -> None:
        """A target did not do its part: it is counted, and approached less often if that goes
        on.
        """
        name = self._name(t)
        self.roster.count(name, lost.how)
        self._limited(name, lost.code)
        if lost.code == "state":
            self.standing.recover(t, r)
        else:
            self._scoring.failed(name, r, lost.how)

    def _limited(self, name: str, code: Any) -> None:
        """A device at a limit of its owner: the round goes on without, and that is said."""
        if ends(code) and name not in self.roster.limits:
            self.roster.limits[name] = code
            self._say(why(name, code), ())

    def _at_limits(self) -> str:
        """What is to be said about devices at their limits, where a run stops."""
        said = [why(name, code) for name, code in self.roster.limits.items()]
        return "".join(f" {text[0].upper()}{text[1:]}" for text in said)

    def _await_rows(self, r: int) -> None:
        """Rows keep arriving: wait until enough devices say that they have enough new ones."""
        begin = time.monotonic()
        names = list(self.ids)
        before = dict(self.rows)
        while True:
            self.letters.next()
            found = self.letters.exchange(
                {name: ("describe", self.letters.letter(r, 0, {})) for name in names}
            )
            ready = 0
            for name in names:
                try:
                    head, _ = self.letters.opened(name, found[name], "describe", r)
                except Lost:
                    continue
                ready += (
                    int(head["rows"]) - before.get(name, 0) >= self.need
                    if isinstance(head.get("rows"), int)
                    else 0
                )
            if ready and ready >= math.ceil(self.quorum * len(names)):
                return
            if time.monotonic() - begin > self.patience:
                raise NotReady(
                    f"round {r} needs {self.need} new rows on {self.quorum:.0%} of the devices;"
                    f" {ready} have them."
                )
            time.sleep(min(1.0, self.patience))

    def _name(self, t: int) -> str:
        return self.ids[int(self.targets[t])]

    def _to(
        self,
        t: int,
        r: int,
        head: Mapping[str, Any],
        arrays: Mapping[str, Any] | None = None,
    ) -> bytes:
        """A letter to a target, with what it has to adopt first."""
        return self.letters.letter(
            r, int(self.targets[t]), head, arrays, self.standing.pending[t]
        )

    def _judge(self, answers: Answers, peers: IntArray, r: int) -> Answers:
        losses = np.where(np.isfinite(answers.losses), answers.losses, np.inf)
        usable = np.isfinite(losses[:, 1:]).any()
        if usable:
            self._quiet = 0
        # answers came, and none of all could be used
        elif self._proposals or self._odd:
            self._quiet += 1
        if self._quiet >= 5:
            raise diverged(r, self._name(0), self.proposer.advice())
        return Answers(losses, answers.lengths)

    # Going on after an interruption

    def state(self) -> bytes:
        """Everything a new FlowerFleet needs to go on exactly here."""
        heads, arrays = self.standing.to_wire()
        counts = {
            "roster": self.roster.to_plain(),
            "scoring": self._scoring.to_plain(),
            "rows": self.rows,
            "quiet": self._quiet,
        }
        return pack({"targets": heads} | counts, arrays)

    def _restore(self, body: bytes) -> None:
        # a file of our own: all targets' models
        head, arrays = unpack(body, most=max(len(body), LARGEST))
        self.standing.restore(head["targets"], arrays)
        self.roster, self._scoring = (
            Roster.from_plain(head["roster"]),
            Roster.from_plain(head["scoring"]),
        )
        self.rows.update(
            {str(name): int(count) for name, count in head["rows"].items()}
        )
        self._quiet = int(head["quiet"])


def _are(array: Any, count: int) -> bool:
    return array is not None and array.dtype == np.float64 and array.shape == (count,)
