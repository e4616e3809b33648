"""A question to a device, as it came, and the line about it in the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from persfl.federation.ledger import Entry
from persfl.federation.messages import Arrays, Head, digest_of, whole_of
from persfl.federation.run_codec import RunCodec
from persfl.wire.codec import unpack, within
from persfl.wire.terms import Terms

LONGEST_NAME = 200  # of a run, in letters


@dataclass(frozen=True, eq=False)
class Inquiry:
    """A message that says of which run and round it is; what else it holds is read when needed."""

    kind: str
    run: str
    round: int
    ask: int
    head: Head
    arrays: Arrays

    @staticmethod
    def read(kind: str, body: object) -> Inquiry:
        """From the bytes of a message."""
        head, arrays = unpack(body)
        run = str(head.get("run", ""))[:LONGEST_NAME]
        where = whole_of(head, "round"), whole_of(head, "ask")
        return Inquiry(kind, run, *where, head, arrays)

    @property
    def about(self) -> dict[str, Any]:
        """What a reply repeats."""
        return {
            "run": self.run,
            "round": self.round,
            "ask": self.ask,
            "kind": self.kind,
        }

    @cached_property
    def codec(self) -> RunCodec:
        """What is asked under: the terms of the run."""
        return RunCodec(Terms.from_wire(self.head, self.arrays))

    @property
    def terms(self) -> Terms:
        return self.codec.terms

    @property
    def me(self) -> int:
        """The position that the device has in the run."""
        return whole_of(self.head, "me")

    @property
    def plain_terms(self) -> list[tuple[str, Any]]:
        """The terms but for their arrays, in an order of their own."""
        return sorted(self.head["terms"].items())

    def digest(self, *about: object) -> str:
        """The same for the same terms and whatever else an answer depends on."""
        return digest_of((self.plain_terms, *about), within("terms", self.arrays))

    def entry(self, kind: str, name: str = "", digest: str = "", **more: Any) -> Entry:
        """The ledger's line about this, or a part of it."""
        return Entry(self.run, self.round, kind, name, digest, **more)
