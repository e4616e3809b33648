"""A fleet whose devices are elsewhere: rounds as messages.

A round is one message to each peer that is asked, with the probes of all targets that ask it, and
one message to each target, with the answers to score. What a target adopts travels with its next
message. The coordinator relays: rows and scoring stay at home.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from persfl.checks import real, stranger
from persfl.devices import position
from persfl.errors import InputError
from persfl.federation.adoptions import Adoption
from persfl.federation.letters import Letters
from persfl.federation.messages import Arrays, Responder
from persfl.federation.model_sizes import ModelSizes
from persfl.federation.patience import Away, Patience, Say
from persfl.federation.peer_side import PeerSide, Proposals
from persfl.federation.post import Post
from persfl.federation.roster import Roster
from persfl.federation.target_side import RoundScores, TargetSide
from persfl.federation.target_state import TargetStates
from persfl.fleets.kept_steps import Steps, as_vector, vectors
from persfl.fleets.refusals import diverged
from persfl.types import Answers, Array, Choice, IntArray, Kept, Model
from persfl.wire.codec import LARGEST, pack, unpack
from persfl.wire.terms import Terms

__all__ = ["Away", "FlowerFleet"]
QUIET = 5  # rounds in which no answer of all could be used, until it is said


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
        home: Mapping[str, Responder] | None = None,
        run: str = "run",
        deadline: float = 60.0,
        quorum: float = 0.5,
        patience: float = 600.0,
        need: int = 0,
        start: Sequence[Model] | None = None,
        state: bytes | None = None,
        say: Say = lambda where, missing: None,
    ) -> None:
        self.terms = terms
        self.post = post
        self.need = need
        self.patience = Patience(quorum, patience, say)
        self.home = dict(home or {})
        limit = real("deadline", deadline, above=0)
        self.letters = Letters(post, terms, run=run, home=self.home, deadline=limit)
        self.ids = sorted({*ids, *self.home})
        self.n = len(self.ids)
        self.targets = self._positions(targets)
        self.codec = self.letters.codec
        self.learner = self.codec.learner
        self.proposer = self.codec.proposer
        self.states = TargetStates(self.codec, len(self.targets))
        self.peer_side = PeerSide(self.letters, self.patience, self.ids, self.targets)
        self.target_side = TargetSide(self.peer_side, self.states)
        self._proposals: Proposals = {}
        self._scores: RoundScores | None = None  # of the round before adoption
        self._steps: Steps | None = None  # where an adopter remembers them
        # targets whose model was not known when steps were kept last
        self._unseen: list[int] = []
        self._r = 0
        self._quiet = 0
        self._waited_for = -1
        if state is not None:
            self._restore(state)
        elif start is not None:
            self.states.hand_in(start)

    def _positions(self, targets: Sequence[Hashable] | None) -> IntArray:
        """Where the targets stand among the devices."""
        chosen = targets
        if chosen is None:
            chosen = sorted(self.home) or self.ids
        found = [position(self.ids, name) for name in chosen]
        if len(set(found)) < len(found):
            raise InputError("targets must differ. Got a device twice.")
        return np.array(found, dtype=np.int64)

    @property
    def roster(self) -> Roster:
        """How devices did as peers."""
        return self.peer_side.roster

    @property
    def rows(self) -> dict[str, int]:
        """How many rows devices said they have."""
        return self.letters.rows

    @property
    def new(self) -> dict[str, int]:
        """How many of them came since the round before."""
        return self.letters.new

    @property
    def models(self) -> NDArray[Any] | list[Model | None]:
        """One model per target as far as they were seen here: None where a target still has the
        one it made at home.
        """
        known = self.states.models
        vectors = [model for model in known if isinstance(model, np.ndarray)]
        return np.stack(vectors) if len(vectors) == len(known) else list(known)

    # The loop

    def observe(self, r: int) -> None:
        """Wait for new rows, where the run needs some; get the probes of targets that have not
        begun.
        """
        if self.need and self._waited_for < r:
            self.peer_side.await_rows(self.need, r)
            self._waited_for = r
        self.target_side.begin(r)

    def probe(self, peers: IntArray, r: int) -> Answers:
        """Ask every peer, have every answer scored by its target."""
        if peers.max(initial=-1) >= self.n:
            raise stranger(int(peers.max()), self.n)
        self._r = r
        self.states.before(r)
        self.target_side.begin(r)
        self._proposals = self.peer_side.collect(peers, self.states.probes, r)
        self._scores = self.target_side.score(
            peers, self._proposals, r, step=self._steps is not None
        )
        losses = np.where(np.isfinite(self._scores.losses), self._scores.losses, np.inf)
        self._watch(losses, r)
        return Answers(losses, self._scores.lengths)

    def _watch(self, losses: Array, r: int) -> None:
        """Stop where answers came, round after round, and none of all could be used. One device
        alone stops nobody.
        """
        came = self._proposals.keys() | self.peer_side.odd
        if np.isfinite(losses[:, 1:]).any():
            self._quiet = 0
        elif came and not self.peer_side.doubtful(came):
            self._quiet += 1
        if self._quiet >= QUIET:
            raise diverged(r, self.target_side.names[0], self.proposer.advice())

    def keep(self, peers: IntArray, r: int) -> Kept:
        """Remember the steps of the peers just asked, and every target's own, which it tells
        with its scores.
        """
        models = self._vectors()
        if self._steps is None:
            self._steps = Steps(targets=self.targets, start=models)
            nobody = np.full((len(self.targets), 0), -1)
            self._scores = self.target_side.score(nobody, {}, r, step=True)
        assert self._scores is not None  # nobody remembers steps before the first probe
        nothing = np.full(models.shape[1], np.nan)
        answers = [
            [as_vector(self._proposals.get((t, int(p))), nothing) for p in row]
            for t, row in enumerate(peers)
        ]
        # A target that is away keeps the step it would have taken last.
        steps = self._scores.steps
        usual = self._steps.own[1]
        own = [steps.get(t, model + usual[t]) for t, model in enumerate(models)]
        return self._steps.keep(
            peers, models, np.array(answers).reshape(*peers.shape, -1), np.stack(own)
        )

    def own_lengths(self, r: int) -> Array:
        """(T,) how far their own rows would take the targets just asked; NaN where none was told.

        A target tells it with its scores. Whoever lies about it bends the guard of nobody else.
        """
        found = np.full(len(self.targets), np.nan)
        if self._scores is not None and r == self._r:
            for t, length in self._scores.reach.items():
                found[t] = length
        return np.where(np.isfinite(found) & (found >= 0), found, np.nan)

    def _vectors(self) -> Array:
        """(T, size) models for remembered steps; a target that has not been seen yet has none,
        and starts when it comes.
        """
        absent = [t for t, model in enumerate(self.states.models) if model is None]
        if len(absent) == len(self.targets):
            return vectors(self.models)  # says what is wrong
        known = [model for model in self.states.models if model is not None]
        nothing = np.zeros_like(known[0])
        models = vectors(
            [nothing if model is None else model for model in self.states.models]
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
        self._steps = None
        if arrays is not None:
            self._steps = Steps.from_arrays(arrays, self.targets, self.codec.size)
        models = enumerate(self.states.models)
        self._unseen = [t for t, model in models if model is None]

    def adopt(self, choice: Choice) -> None:
        """Tell every target what it adopts: with its next message, or now where only the target
        can know what follows.
        """
        if self._steps is not None:
            models = self._vectors()
            moved = self._steps.moved_by(models, choice).astype(models.dtype)
            for t, model in enumerate(moved):
                if t not in self._unseen:
                    self.states.adopt(t, Adoption.whole(self._r, model))
        else:
            for t in range(len(self.targets)):
                self.states.adopt(t, self._adoption(t, choice))
        if self.states.eager:
            self.target_side.begin(self._r)

    def _adoption(self, t: int, choice: Choice) -> Adoption:
        """What a target adopts of the proposals of this round."""
        pairs = zip(choice.weights[t].tolist(), choice.peers[t].tolist(), strict=True)
        taken = [
            (weight, self._proposals[t, peer]) for weight, peer in pairs if weight > 0
        ]
        weights = tuple(weight for weight, _ in taken)
        pieces = tuple(piece for _, piece in taken)
        return Adoption(self._r, float(choice.stay[t]), weights, pieces)

    def finish(self) -> list[str]:
        """Tell every target its last adoption; the ids of those that could not be told (they
        keep an older model).
        """
        side = self.target_side
        pending = self.states.pending
        side.tell([t for t in side.everyone if pending[t]], self._r, probe=False)
        return [side.names[t] for t in side.everyone if pending[t]]

    def judged(self) -> dict[int, Arrays]:
        """What targets tell of the rows that they held back, by position among the devices (see
        `holdout`).
        """
        return self.target_side.judgements(self._r)

    # Going on after an interruption

    def state(self) -> bytes:
        """Everything a new FlowerFleet needs to go on exactly here."""
        heads, arrays = self.states.to_wire()
        counts = {
            "roster": self.roster.to_plain(),
            "scoring": self.target_side.roster.to_plain(),
            "rows": self.rows,
            "sizes": self.peer_side.sizes.to_plain(),
            "quiet": self._quiet,
        }
        return pack({"targets": heads} | counts, arrays)

    def _restore(self, body: bytes) -> None:
        # a file of our own: all targets' models
        head, arrays = unpack(body, most=max(len(body), LARGEST))
        self.states.restore(head["targets"], arrays)
        self.peer_side.roster = Roster.from_plain(head["roster"])
        self.target_side.roster = Roster.from_plain(head["scoring"])
        rows = {str(name): int(count) for name, count in head["rows"].items()}
        self.rows.update(rows)
        # states of earlier versions have none
        self.peer_side.sizes = ModelSizes(head.get("sizes"))
        self._quiet = int(head["quiet"])
