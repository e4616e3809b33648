"""The coordinator's side of targets: one message to each, with the answers to score and what it
adopts first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from persfl.federation.holdout import SIZES, sound
from persfl.federation.letters import REFUSALS, Lost, at_limits
from persfl.federation.messages import Arrays, Content, Head
from persfl.federation.patience import Away, Go
from persfl.federation.roster import Roster
from persfl.federation.target_state import TargetStates
from persfl.types import Array, IntArray, Model
from persfl.wire.codec import WireError, nested, within

if TYPE_CHECKING:
    from persfl.federation.peer_side import PeerSide, Proposals


class RoundScores(NamedTuple):
    """Of a round: losses (the own one first) and lengths per target; where own steps would take
    targets, and how far, as far as they told.
    """

    losses: Array
    lengths: Array
    steps: dict[int, Model]
    reach: dict[int, float]


class TargetSide:
    """Talks to targets; what is wrong with one is counted in the roster of the peers' side."""

    def __init__(self, peers: PeerSide, states: TargetStates) -> None:
        self.peers = peers
        self.states = states
        self.letters = peers.letters
        self.patience = peers.patience
        self.roster = Roster()  # whom to leave alone for a while
        # who pays for each answer, and is not asked for a loss that nothing hangs on
        self.paying: frozenset[str] = frozenset()
        # who refines its model when it is judged, and tells nothing of that
        self.protected: frozenset[str] = frozenset()
        self.names = [peers.ids[int(t)] for t in peers.targets]

    @property
    def everyone(self) -> range:
        """The targets as positions among themselves."""
        return range(len(self.names))

    def score(
        self, peers: IntArray, proposals: Proposals, r: int, *, step: bool
    ) -> RoundScores:
        """Have every answer scored by its target; `step` asks also for the own step."""
        count, many = peers.shape
        found = RoundScores(
            np.full((count, many + 1), np.inf), np.full((count, many), np.nan), {}, {}
        )
        found.losses[:, 0] = self.states.own
        due = [
            t
            for t in self.everyone
            if self.states.probes[t] is not None and self.roster.due(self.names[t], r)
        ]
        shown = {
            t: [s for s in range(many) if (t, int(peers[t, s])) in proposals]
            for t in due
        }
        if not step:
            spared = [t for t in due if self.names[t] in self.paying and not shown[t]]
            shown = {t: shown[t] for t in due if t not in spared}

        def letter(t: int) -> tuple[Head, Arrays]:
            arrays: dict[str, NDArray[Any]] = {}
            for i, s in enumerate(shown[t]):
                model = self.letters.codec.model_to(proposals[t, int(peers[t, s])])
                arrays |= nested(f"p{i}", model)
            length = self.letters.codec.models_travel
            return {"count": len(shown[t]), "step": step, "length": length}, arrays

        replies = self._ask("score", list(shown), r, letter)
        with self.letters.own_time():
            for t, columns in shown.items():
                self._read_scores(t, columns, replies[t], r, found)
        return found

    def _read_scores(
        self,
        t: int,
        columns: Sequence[int],
        reply: Content | Lost,
        r: int,
        found: RoundScores,
    ) -> None:
        """Note what a target says; what is no loss costs it its round, not everybody the run."""
        if isinstance(reply, Lost):
            self._missed(t, r, reply)
            return
        arrays = reply[1]
        own = _floats(arrays, "own", 1)
        losses = _floats(arrays, "losses", len(columns))
        lengths = _floats(arrays, "lengths", len(columns))
        if own is None or losses is None or lengths is None or not own[0] > -np.inf:
            self._missed(t, r, Lost("format"))
            return
        self._done(t, r)
        if "step.vector" in arrays:
            with suppress(WireError):
                found.steps[t] = self.letters.codec.model_from(within("step", arrays))
        length = _floats(arrays, "length", 1)
        if length is not None:
            found.reach[t] = float(length[0])
        self.states.own[t] = found.losses[t, 0] = float(own[0])
        places = np.array(columns, dtype=np.int64)
        found.losses[t, places + 1] = losses
        found.lengths[t, places] = lengths

    def begin(self, r: int) -> None:
        """Probes of the targets whose probe is not known here."""
        states = self.states
        unknown = [t for t in self.everyone if states.probes[t] is None]
        which = [t for t in unknown if self.roster.due(self.names[t], r)]
        self.tell(which, r, probe=True)
        if all(probe is None for probe in states.probes):
            raise Away(
                f"round {r}: no target is there to ask anybody. Everything is kept: go on when one"
                f" is back.{at_limits(self.peers.roster.limits)}"
            )

    def tell(self, which: Sequence[int], r: int, *, probe: bool) -> None:
        """Tell these targets what they adopt, and ask for their probes if wanted."""
        left = list(which)
        least = self.patience.least(len(self.names))

        def attempt() -> Go:
            replies = self._ask("adopt", left, r, lambda t: ({"probe": probe}, {}))
            for t, reply in replies.items():
                if self._took(t, reply, r, probe=probe):
                    left.remove(t)
            absent = sum(one is None for one in self.states.probes)
            known = len(self.names) - (absent if probe else len(left))
            return Go(not left or known >= least, [self.names[t] for t in left])

        if left:
            self.patience.until(f"round {r + 1}", attempt)

    def _took(self, t: int, reply: Content | Lost, r: int, *, probe: bool) -> bool:
        """Note what a target has adopted; whether it needs not be told again."""
        try:
            if isinstance(reply, Lost):
                raise reply
            if probe:
                self.states.tell(t, within("probe", reply[1]))
        except (Lost, WireError) as trouble:
            lost = trouble if isinstance(trouble, Lost) else Lost("format")
            self._missed(t, r, lost)
            return lost.code in REFUSALS
        self._done(t, r)
        return True

    def judgements(self, r: int) -> dict[int, Arrays]:
        """What targets tell of the rows that they held back, by position among the devices (see
        `holdout`); where none are held back, only those are asked that refine their models then.
        """
        found: dict[int, Arrays] = {}
        head = {"count": 0, "judge": True}
        held = self.letters.terms.holdout > 0
        who = [t for t in self.everyone if held or self.names[t] in self.protected]
        replies = self._ask("score", who, r, lambda t: (head, {})) if who else {}
        for t, reply in replies.items():
            if isinstance(reply, Lost):
                continue
            self.states.pending[t] = []
            told = {name: reply[1][name] for name in SIZES if name in reply[1]}
            if sound(told):
                found[int(self.peers.targets[t])] = told
        return found

    def _ask(
        self,
        kind: str,
        which: Sequence[int],
        r: int,
        content: Callable[[int], tuple[Head, Arrays]],
    ) -> Mapping[int, Content | Lost]:
        """A letter to each of these targets, with what it has to adopt first."""
        self.letters.next()
        targets = self.peers.targets
        bodies = {}
        with self.letters.own_time():
            for t in which:
                head, arrays = content(t)
                bodies[self.names[t]] = self.letters.letter(
                    r, int(targets[t]), head, arrays, self.states.pending[t]
                )
        replies = self.letters.ask(kind, r, bodies)
        return {t: replies[self.names[t]] for t in which}

    def _done(self, t: int, r: int) -> None:
        """A target has done its part, and adopted what it was told."""
        self.roster.answered(self.names[t], r)
        self.states.pending[t] = []

    def _missed(self, t: int, r: int, lost: Lost) -> None:
        """A target did not do its part: it is counted, and approached less often if that goes
        on.
        """
        name = self.names[t]
        self.peers.roster.count(name, lost.how)
        self.peers.limited(name, lost.code)
        if lost.code == "state":
            self.states.recover(t, r)
        else:
            self.roster.failed(name, r, lost.how)


def _floats(arrays: Arrays, name: str, count: int) -> Array | None:
    """So many numbers under a name, if that is what is there."""
    array = arrays.get(name)
    if array is None or array.dtype != np.float64 or array.shape != (count,):
        return None
    return array
