"""Letters of a run: what is asked of a device, and replies that are what they should be.

A reply is read only if it comes from the device that was asked, answers this very question (its
number), and belongs to this round of this run. Anything else is `Lost`, in one of the ways of the
roster.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property

from persfl.errors import InputError, NotReady
from persfl.federation.adoptions import Adoption, adoptions_to
from persfl.federation.messages import Arrays, Content, Head, Responder
from persfl.federation.post import Post
from persfl.federation.reply_inbox import Failed
from persfl.federation.run_codec import RunCodec
from persfl.federation.wait_notices import MOST
from persfl.types import Learner
from persfl.wire.codec import LARGEST, WireError, pack, unpack
from persfl.wire.terms import Terms

# Refusals that would change a result without a word: settings of an owner, and what they bound.
LIMITS = {
    "questions_per_target": "different questions on behalf of one target in a run",
    "questions": "different questions in a run",
    "questions_ever": "different questions in all runs together",
    "numbers": "numbers that it tells of itself in a run",
    "numbers_ever": "numbers that it tells of itself in all runs together",
    "work": "work for one message",
    "disk": "bytes of models that it keeps",
    "budget": "epsilon of its privacy, for everything it ever tells",
}
# What an owner does not allow in any run: others go on without it, and that is said.
FORBIDDEN = {
    "models": "families of models that it answers with",
    "steps": "gradient steps of one answer",
    "trees": "trees of one answer",
}
_BOUNDS = LIMITS | FORBIDDEN
REFUSALS = (
    "models", "steps", "trees", "rows", "target", "sums", "split", "labels", "privacy",
    *LIMITS
)  # fmt: skip


class Limited(NotReady):
    """A device has reached a limit of its owner: the run would come to something else."""


def why(name: str, code: str) -> str:
    """What a coordinator says about a refusal by a limit, and who can do something about it.

    >>> why("ann", "work")
    "device 'ann' is at its owner's limit 'work' (work for one message). Only the owner can raise
    it, in node.toml."
    """
    if code == "split":
        return (
            f"device {name!r} has answered from other rows before, and from those asked for now"
            " they differ by fewer than its owner's 'rows', or its table has lost columns. Ask with"
            " the holdout, classes, batch and order of the earlier run, or wait for more rows; only"
            " the owner can bring columns back, or begin anew, without ledger.sqlite."
        )
    if code == "labels":
        return (
            f"device {name!r} has labels that are none of the run's classes, 0 to one less than"
            " there are. Correct `classes`, or have its owner correct the table."
        )
    if code == "privacy":
        return (
            f"device {name!r} protects its rows: it tells noised sums, steps and losses of linear"
            " models and networks, and sums in leaves of random trees of numbers, and nothing else."
            " Use --method blend, or fedavg with a few"
            " --rounds; shared units need ranges of all columns in its [privacy.ranges]."
            " docs/privacy.md says what can be asked."
        )
    what = _BOUNDS.get(code, "as a folder of somebody else's says")
    reached = f"device {name!r} is at its owner's limit {code!r} ({what})."
    return f"{reached} Only the owner can raise it, in node.toml."


def capital(text: str) -> str:
    """A sentence that begins as one.

    >>> capital("device 'ann' is away.")
    "Device 'ann' is away."
    """
    return text[:1].upper() + text[1:]


def ends(code: object) -> bool:
    """Whether a refusal changes what comes out: blend and shared units are made of everybody's.

    >>> ends("work"), ends("steps")
    (True, False)
    """
    return isinstance(code, str) and (
        code in LIMITS or code in ("split", "labels", "privacy")
    )


def are_few(some: Collection[str], there: Collection[str]) -> bool:
    """Whether these are fewer than half: what they say ends nobody else's run.

    >>> are_few({"eve"}, {"ann", "eve"}), are_few({"eve"}, {"ann", "bob", "eve"})
    (False, True)
    """
    return 2 * len(some) < len(there)


def forbids(code: object) -> bool:
    """Whether an owner allows this in no run.

    >>> forbids("steps"), forbids("work")
    (True, False)
    """
    return isinstance(code, str) and code in FORBIDDEN


def at_limits(limits: Mapping[str, str]) -> str:
    """What is to be said of devices at these limits, where a run stops.

    >>> at_limits({"ann": "work"})
    " Device 'ann' is at its owner's limit 'work' (work for one message). Only the owner can raise
    it, in node.toml."
    """
    first = list(limits.items())[:MOST]
    said = [f" {capital(why(name, code))}" for name, code in first]
    left = len(limits) - MOST
    if left > 0:
        said.append(f" {left} more are at limits of theirs.")
    return "".join(said)


class Lost(Exception):
    """A reply that cannot be used, and in which way."""

    def __init__(self, how: str, code: str = "") -> None:
        super().__init__(how)
        self.how = how
        self.code = code


class Letters:
    """Writes letters of a run, sends them, opens replies; devices in `home` are asked without a
    network. Before there are terms, only who devices are can be asked.
    """

    def __init__(
        self,
        post: Post,
        terms: Terms | None,
        *,
        run: str,
        home: Mapping[str, Responder],
        deadline: float,
    ) -> None:
        self.post = post
        self.run = run
        self.home = dict(home)
        self.deadline = deadline
        self._terms = terms
        self.rows: dict[str, int] = {}  # how many each device said it has
        # and how many of them are new since the round before
        self.new: dict[str, int] = {}
        # spent by persfl here, and at the slowest device of each exchange
        self.own_seconds = 0.0
        self._slowest = 0.0
        self._number = secrets.randbelow(2**40)  # not a number that an earlier run used

    @cached_property
    def codec(self) -> RunCodec:
        """How models and probes of the run travel."""
        return RunCodec(self.terms)

    @property
    def terms(self) -> Terms:
        """The terms of the run."""
        assert self._terms is not None, "asked before there are terms"
        return self._terms

    @property
    def learner(self) -> Learner:
        """The model family of the run."""
        return self.codec.learner

    @contextmanager
    def own_time(self) -> Iterator[None]:
        """Count the time in this block as persfl's own."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.own_seconds += time.monotonic() - begin

    def next(self, number: int | None = None) -> None:
        """A new number for the letters to come: replies to earlier ones are stale from now on."""
        self._number = self._number + 1 if number is None else number

    def letter(
        self,
        r: int,
        me: int,
        head: Head,
        arrays: Arrays | None = None,
        adoptions: Sequence[Adoption] = (),
    ) -> bytes:
        """A letter to the device at position `me`, with what it has to adopt first."""
        about = {"run": self.run, "round": r, "ask": self._number, "me": me}
        more = dict(arrays or {})
        if self._terms is not None:
            told, inside = self._terms.to_wire()
            told["adoptions"], models = adoptions_to(self.codec, adoptions)
            about |= told
            more = {**inside, **models, **more}
        body = pack(about | dict(head), more)
        if len(body) > LARGEST:
            raise InputError(
                f"a message has at most {LARGEST // 2**20} MiB, and one of round {r} takes"
                f" {len(body) // 2**20}. Use a smaller model, fewer targets or fewer peers."
            )
        return body

    def exchange(
        self, letters: Mapping[str, tuple[str, bytes]]
    ) -> dict[str, bytes | Failed]:
        """Send (kind, letter) to devices by name; a reply or a failure for each."""
        self.own_seconds = self.own_seconds + self._slowest
        self._slowest = 0.0
        found: dict[str, bytes | Failed] = {}
        far: dict[str, tuple[str, bytes]] = {}
        with self.own_time():
            for name, letter in letters.items():
                if name in self.home:
                    found[name] = self.home[name].reply(*letter)
                else:
                    far[name] = letter
        return found | self.post.exchange(far, self.deadline)

    def opened(self, name: str, reply: bytes | Failed, kind: str, r: int) -> Content:
        """Head and arrays of a reply that is what it should be."""
        if isinstance(reply, Failed):
            raise Lost(reply.how)
        try:
            head, arrays = unpack(reply)
        except WireError:
            raise Lost("format") from None
        code = head.get("code")
        if code != "ok":
            raise Lost(way(code), str(code)[:40])
        about = [head.get(key) for key in ("device", "run", "round", "kind", "ask")]
        if about != [name, self.run, r, kind, self._number]:
            raise Lost("stale")
        for counts, key in ((self.rows, "rows"), (self.new, "new")):
            count = head.get(key)
            if isinstance(count, int) and 0 <= count < 2**53:
                counts[name] = count
        seconds = head.get("seconds")
        if isinstance(seconds, float) and 0 <= seconds < 1e6:
            self._slowest = max(self._slowest, seconds)
        return head, arrays

    def ask(
        self, kind: str, r: int, letters: Mapping[str, bytes]
    ) -> dict[str, Content | Lost]:
        """Send letters of one kind by name, and open what comes back."""
        replies = self.exchange({name: (kind, body) for name, body in letters.items()})
        found: dict[str, Content | Lost] = {}
        for name, reply in replies.items():
            try:
                found[name] = self.opened(name, reply, kind, r)
            except Lost as lost:
                found[name] = lost
        return found


def way(code: object) -> str:
    """In which way of the roster a device said no.

    >>> way("rows"), way("format"), way("what?")
    ('refused', 'format', 'failed')
    """
    return "refused" if code in REFUSALS else "format" if code == "format" else "failed"
