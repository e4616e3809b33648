"""Letters of a run: what is asked of a device, and replies that are what they should be.

A reply is read only if it comes from the device that was asked, answers this very question (its
number), and belongs to this round of this run. Anything else is `Lost`, in one of the ways of the
roster.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from persfl.errors import InputError, NotReady
from persfl.federation.device import Device
from persfl.federation.inbox import Failed
from persfl.federation.post import Post
from persfl.federation.target_state import Adoption
from persfl.wire import LARGEST, Terms, WireError, model_to, nested, pack, unpack

# Refusals that would change a result without a word: settings of an owner, and what they bound.
LIMITS = {
    "questions_per_target": "different questions on behalf of one target in a run",
    "questions": "different questions in a run",
    "questions_ever": "different questions in all runs together",
    "numbers": "numbers that it tells of itself in a run",
    "numbers_ever": "numbers that it tells of itself in all runs together",
    "work": "work for one message",
    "disk": "bytes of models that it keeps",
}
REFUSALS = ("models", "steps", "trees", "rows", "target", "sums", "split", *LIMITS)


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
            " they differ by fewer than its owner's 'rows'. Ask with the holdout, classes, batch"
            " and order of the earlier run, or wait for more rows; only the owner can begin anew,"
            " without ledger.sqlite."
        )
    reached = f"device {name!r} is at its owner's limit {code!r} ({LIMITS[code]})."
    return f"{reached} Only the owner can raise it, in node.toml."


def ends(code: Any) -> bool:
    """Whether a refusal changes what comes out: blend and shared units need everybody."""
    return isinstance(code, str) and (code in LIMITS or code == "split")


class Lost(Exception):
    """A reply that cannot be used, and in which way."""

    def __init__(self, how: str, code: str = "") -> None:
        super().__init__(how)
        self.how, self.code = how, code


class Letters:
    """Writes letters, sends them, opens replies; devices in `home` are asked without a network."""

    def __init__(
        self,
        post: Post,
        terms: Terms,
        *,
        run: str,
        home: Mapping[str, Device],
        deadline: float,
    ) -> None:
        self.post, self.terms, self.run, self.home, self.deadline = (
            post,
            terms,
            run,
            dict(home),
            deadline,
        )
        self.learner = terms.learner()
        self.rows: dict[str, int] = {}  # how many each device said it has
        # and how many of them are new since the round before
        self.new: dict[str, int] = {}
        # spent by persfl here, and at the slowest device of each exchange
        self.own_seconds = 0.0
        self._slowest = 0.0
        self._number = secrets.randbelow(2**40)  # not a number that an earlier run used

    def next(self, number: int | None = None) -> None:
        """A new number for the letters to come: replies to earlier ones are stale from now on."""
        self._number = self._number + 1 if number is None else number

    def letter(
        self,
        r: int,
        me: int,
        head: Mapping[str, Any],
        arrays: Mapping[str, Any] | None = None,
        adoptions: Sequence[Adoption] = (),
    ) -> bytes:
        """A letter to the device at position `me`, with what it has to adopt first."""
        told, more = self.terms.to_wire()
        for i, one in enumerate(adoptions):
            for k, piece in enumerate(one.pieces):
                more |= nested(f"a{i}.{k}", model_to(self.learner, piece))
        told["adoptions"] = [
            {
                "round": a.round,
                "stay": a.stay,
                "weights": list(a.weights),
                "set": a.anew,
            }
            for a in adoptions
        ]
        about = {"run": self.run, "round": r, "ask": self._number, "me": me}
        body = pack(about | told | dict(head), {**more, **(arrays or {})})
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
        self.own_seconds, self._slowest = self.own_seconds + self._slowest, 0.0
        begin = time.monotonic()
        found: dict[str, bytes | Failed] = {
            n: self.home[n].reply(*letter)
            for n, letter in letters.items()
            if n in self.home
        }
        self.own_seconds += time.monotonic() - begin
        return found | self.post.exchange(
            {n: letter for n, letter in letters.items() if n not in self.home},
            self.deadline,
        )

    def opened(
        self, name: str, reply: bytes | Failed, kind: str, r: int
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Head and arrays of a reply that is what it should be."""
        if isinstance(reply, Failed):
            raise Lost(reply.how)
        try:
            head, arrays = unpack(reply)
        except WireError:
            raise Lost("format") from None
        if head.get("code") != "ok":
            raise Lost(way(head.get("code")), str(head.get("code"))[:40])
        about = (
            head.get("device"),
            head.get("run"),
            head.get("round"),
            head.get("kind"),
            head.get("ask"),
        )
        if about != (name, self.run, r, kind, self._number):
            raise Lost("stale")
        rows, new = head.get("rows"), head.get("new")
        if isinstance(rows, int) and 0 <= rows < 2**53:
            self.rows[name] = rows
        if isinstance(new, int) and 0 <= new < 2**53:
            self.new[name] = new
        seconds = head.get("seconds")
        if isinstance(seconds, float) and 0 <= seconds < 1e6:
            self._slowest = max(self._slowest, seconds)
        return head, arrays


def way(code: Any) -> str:
    """In which way of the roster a device said no.

    >>> way("rows"), way("format"), way("what?")
    ('refused', 'format', 'failed')
    """
    return "refused" if code in REFUSALS else "format" if code == "format" else "failed"
