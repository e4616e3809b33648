"""The coordinator's side of peers: one message to each peer that is asked, with the probes of all
targets that ask it, and what usable answers came back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from persfl.checks import percent
from persfl.errors import NotReady
from persfl.federation.letters import Letters, Lost, at_limits, ends, forbids, way, why
from persfl.federation.messages import Content, parts_of, size_of
from persfl.federation.model_sizes import ModelSizes
from persfl.federation.patience import Away, Go, Patience
from persfl.federation.roster import Roster
from persfl.types import IntArray, Probe, Proposal
from persfl.wire.codec import WireError, nested

Proposals = dict[tuple[int, int], Proposal]  # by target and peer, as positions


class PeerSide:
    """Asks peers on behalf of targets; `targets` are positions among the ids."""

    def __init__(
        self,
        letters: Letters,
        patience: Patience,
        ids: Sequence[str],
        targets: IntArray,
    ) -> None:
        self.letters = letters
        self.patience = patience
        self.ids = ids
        self.targets = targets
        self.roster = Roster()
        # of peers that pay for each answer: noised numbers of rows beside the last one (see
        # `persfl.federation.private_messages`)
        self.seen: dict[int, tuple[float, float]] = {}
        # answers of this round that could not be read, by target and peer
        self.odd: set[tuple[int, int]] = set()
        self.sizes = ModelSizes()
        self._bytes: dict[tuple[int, int], int] = {}  # of this round's answers
        self._silent: set[int] = set()  # who did not answer when asked last

    def collect(
        self, peers: IntArray, probes: Sequence[Probe | None], r: int
    ) -> Proposals:
        """What the peers of each target propose, in several goes where too few answer."""
        self.odd = set()
        self._bytes = {}
        found: Proposals = {}
        asked = self._asked(peers, probes, r)
        left = dict(asked)

        def attempt() -> Go:
            done = self._once(left, probes, r, found)
            self._silent |= left.keys()
            for peer in done:
                left.pop(peer)
            self._silent -= {*done}
            enough = len(asked) - len(left) >= self.patience.least(len(asked))
            return Go(enough or self._are_there(), [self.ids[peer] for peer in left])

        waited = self.patience.until(f"round {r + 1}", attempt) if asked else None
        if waited is not None:
            done = len(asked) - len(left)
            raise Away(
                f"round {r}: {done} of {len(asked)} devices answered within {waited:.0f} s, and the"
                f" quorum is {self.patience.quorum:g} of them. Everything is kept: go on when they"
                f" are back.{at_limits(self.roster.limits)}"
            )
        self._leave_out_large(found)
        return found

    def _are_there(self) -> bool:
        """Whether a quorum of all may be there: where few are asked, one of them alone ends no run.
        Of two, none may be missing.
        """
        far = len(self.ids) - len(self.letters.home)
        return far > 2 and far - len(self._silent) >= self.patience.least(far)

    def _leave_out_large(self, found: Proposals) -> None:
        """Without answers that would fill the messages to those who asked."""
        for pair, size in self._bytes.items():
            if self.sizes.is_too_large(size):
                del found[pair]
                self.odd.add(pair)
                name = self.ids[pair[1]]
                self.roster.count(name, "answered", -1)
                self.roster.count(name, "format")

    def _asked(
        self, peers: IntArray, probes: Sequence[Probe | None], r: int
    ) -> dict[int, list[int]]:
        """Who is asked now, and by whom."""
        asked: dict[int, list[int]] = {}
        for t, s in np.argwhere(peers >= 0).tolist():
            peer = int(peers[t, s])
            if probes[t] is None:
                continue
            if self.roster.due(self.ids[peer], r):
                asked.setdefault(peer, []).append(t)
            else:
                self.roster.count(self.ids[peer], "rested")
        return asked

    def _once(
        self,
        asked: Mapping[int, Sequence[int]],
        probes: Sequence[Probe | None],
        r: int,
        found: Proposals,
    ) -> list[int]:
        """One go: who needs not be asked again."""
        self.letters.next()
        bodies = {}
        with self.letters.own_time():
            for peer, who in asked.items():
                bodies[self.ids[peer]] = self._letter(peer, who, probes, r)
                self.roster.count(self.ids[peer], "asked", len(who))
        replies = self.letters.ask("answer", r, bodies)
        with self.letters.own_time():
            return [
                peer
                for peer, who in asked.items()
                if self._read(peer, who, replies[self.ids[peer]], r, found)
            ]

    def _letter(
        self, peer: int, who: Sequence[int], probes: Sequence[Probe | None], r: int
    ) -> bytes:
        arrays: dict[str, NDArray[Any]] = {"targets": self.targets[list(who)]}
        for i, t in enumerate(who):
            arrays |= nested(f"q{i}", self.letters.codec.probe_to(probes[t]))
        names = [self.ids[int(self.targets[t])] for t in who]
        return self.letters.letter(r, peer, {"names": names}, arrays)

    def _read(
        self,
        peer: int,
        who: Sequence[int],
        reply: Content | Lost,
        r: int,
        found: Proposals,
    ) -> bool:
        """Note what a peer answered to each target; whether asking again would be of no use."""
        name = self.ids[peer]
        roster = self.roster
        if isinstance(reply, Lost):
            roster.failed(name, r, reply.how, len(who))
            self.limited(name, reply.code)
            return reply.how == "refused"
        head, arrays = reply
        codes = head.get("codes")
        if not isinstance(codes, list) or len(codes) != len(who):
            roster.failed(name, r, "format", len(who))
            return False
        usable = 0
        parts = parts_of(arrays)
        seen = arrays.get("seen")
        if (
            seen is not None
            and seen.dtype == np.float64
            and seen.shape == (len(who), 2)
        ):
            self.seen[peer] = (float(seen[0, 0]), float(seen[0, 1]))
        for i, (t, code) in enumerate(zip(who, codes, strict=True)):
            if code != "ok":
                self.limited(name, code)
                roster.count(name, way(code))
                continue
            try:
                part = parts.get(f"p{i}", {})
                found[t, peer] = self.letters.codec.model_from(part)
                self._bytes[t, peer] = size_of(part)
                self.sizes.note(peer, self._bytes[t, peer])
                usable += 1
            except WireError:
                roster.count(name, "format")
                self.odd.add((t, peer))
        roster.count(name, "answered", usable)
        if usable:
            roster.answered(name, r)
        else:
            roster.failed(name, r, "refused", 0)
        return True

    def await_rows(self, need: int, r: int) -> None:
        """Rows keep arriving: wait until enough devices say that they have enough new ones."""
        before = dict(self.letters.rows)
        ready = 0

        def attempt() -> Go:
            nonlocal ready
            self.letters.next()
            bodies = {name: self.letters.letter(r, 0, {}) for name in self.ids}
            ready = 0
            for name, reply in self.letters.ask("describe", r, bodies).items():
                rows = None if isinstance(reply, Lost) else reply[0].get("rows")
                if isinstance(rows, int):
                    ready += rows - before.get(name, 0) >= need
            return Go(ready >= self.patience.least(len(self.ids)), ())

        if self.patience.until(f"round {r + 1}", attempt) is not None:
            raise NotReady(
                f"round {r} needs {need} new rows on {percent(self.patience.quorum)} of the"
                f" devices; {ready} have them."
            )

    def doubtful(self, pairs: Collection[tuple[int, int]]) -> bool:
        """Whether one device alone, of three or more, is in all of these pairs of target and peer:
        it may have asked, or answered, nonsense.
        """
        both = [{int(self.targets[t]), peer} for t, peer in pairs]
        others = (i for i, name in enumerate(self.ids) if name not in self.letters.home)
        return len(self.ids) > 2 and any(all(i in b for b in both) for i in others)

    def limited(self, name: str, code: object) -> None:
        """A device at a limit of its owner: the round goes on without, and that is said."""
        if (ends(code) or forbids(code)) and name not in self.roster.limits:
            self.roster.limits[name] = str(code)
            self.patience.say(why(name, str(code)), ())
