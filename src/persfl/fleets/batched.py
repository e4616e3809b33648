"""The NumPy engine: all pairs of a round at once, on arrays.

The adopted answers are computed a second time instead of being kept: an answer is a function of
model, peer and round, and keeping all of them would take targets x peers models of memory. Where
these fit into CACHE bytes, a fleet that remembers steps gets them a second time for nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from persfl.batches import CACHE, batches
from persfl.checks import refuse_strangers
from persfl.fleets.engine import EngineTask, Slice, starting_model
from persfl.fleets.refusals import diverged
from persfl.seeds import Stream, stream
from persfl.traits import has_statistics
from persfl.types import Answers, Array, Choice, IntArray, Models, Probe, PublicProposer

CHUNK = CACHE  # bytes of gathered rows at a time


class Batched:
    """Models are rows of one array; targets are taken in chunks whose rows stay in cache."""

    def __init__(self, task: EngineTask) -> None:
        self.task = task
        self.rows = task.rows
        self.learner = task.learners[0]
        self.proposer = task.proposer
        self._models = np.empty((0, 0))
        # of the last round: which it was, who was asked by which models, and their answers
        self._latest: tuple[int, IntArray, Array, list[Array]] | None = None
        self._settles = self.learner if has_statistics(self.learner) else None
        # looked up once: a round of small steps takes no longer than the question
        self._extra = 0
        if isinstance(task.proposer, PublicProposer):
            self._extra = task.proposer.extra_rows

    @property
    def models(self) -> Array:
        """(T, size) one model per target."""
        return self._models

    @models.setter
    def models(self, models: Models) -> None:
        self._models = np.stack(list(models))

    def started(self, start: str | None) -> Array:
        """(T, size) the targets' first models by this rule."""
        own = self.rows.training
        at = stream(self.task.seed, "start").at(self.rows.targets)
        begun = [
            starting_model(self.learner, own.batch(part), at[part], start)
            for part in self._chunks(own)
        ]
        return np.concatenate(begun)

    def answers(self, peers: IntArray, asked: Slice, r: int) -> Answers:
        """Losses and lengths of all pairs."""
        refuse_strangers(peers, self.rows.n)
        losses = []
        lengths = []
        every = []
        fits = peers.size * self.models.shape[1] * 8 <= CACHE
        for part in self._chunks(asked):
            proposals = self._proposals(part, asked, peers, r)
            if fits:
                every.append(proposals)
            everything = np.concatenate([self.models[part, None], proposals], axis=1)
            loss = self.learner.loss(everything, self.rows.scoring.batch((part, None)))
            nobody = asked.which[part] < 0
            loss[:, 1:][nobody] = np.inf
            losses.append(loss)
            length = self.proposer.length(self.learner, self._probe(part), proposals)
            lengths.append(np.where(nobody, np.nan, length))
        self._latest = (r, peers, self.models, every) if fits else None
        return Answers(np.concatenate(losses), np.concatenate(lengths))

    def advice(self) -> str:
        """What to change when every answer overflows."""
        return self.proposer.advice()

    def proposals(self, peers: IntArray, asked: Slice, r: int) -> Array:
        """(T, S, size) what these peers answer; NaN for nobody."""
        return somebody(
            asked, self.models.shape[1], lambda: self._answered(peers, asked, r)
        )

    def _answered(self, peers: IntArray, asked: Slice, r: int) -> Array:
        """(T, S, size) what peers answer; anything for nobody."""
        if self._latest is not None:
            round_, asked_then, models, every = self._latest
            same = round_ == r and models is self.models
            if same and np.array_equal(asked_then, peers):
                return np.concatenate(every)
        parts = [self._proposals(part, asked, peers, r) for part in self._chunks(asked)]
        return np.concatenate(parts)

    def own_answers(self, r: int) -> Array:
        """(T, size) where the proposer's step on their own rows would take the targets."""
        return self.proposals(
            self.rows.targets[:, None], column(self.rows.training), r
        )[:, 0]

    def own_lengths(self, r: int) -> Array:
        """(T,) how far that is."""
        probe = self.proposer.ask(self.learner, self.models)
        return np.asarray(
            self.proposer.length(self.learner, probe, self.own_answers(r))
        )

    def adopt(self, choice: Choice, r: int) -> None:
        """Every target's model becomes the mix it chose."""
        models = self.models
        if choice.peers.shape[1]:
            proposals = self._answered(choice.peers, self.rows.peers(choice.peers), r)
            if choice.peers.shape[1] == 1 and (choice.weights == 1.0).all():
                models = np.ascontiguousarray(proposals[:, 0])
            else:
                everything = np.concatenate([models[:, None], proposals], axis=1)
                shares = np.concatenate([choice.stay[:, None], choice.weights], axis=1)
                models = self.learner.mix(everything, shares)
        self.hold(models, r)

    def hold(self, models: Array, r: int) -> None:
        """These models from now on: statistics renewed, and a local step further."""
        settles = self._settles
        if settles is not None:
            own = self.rows.training
            models = np.concatenate(
                [
                    settles.settled(models[part], own.batch(part))
                    for part in self._chunks(own)
                ]
            )
        self._models = np.ascontiguousarray(self.after_local(models, r))

    def after_local(self, models: Array, r: int) -> Array:
        """(T, size) the models after the fleet's local step, where it has one."""
        local = self.task.local
        own = self.rows.training
        if local is None:
            return models
        place = stream(self.task.seed, "local", r).at(self.rows.targets)
        moved = []
        for part in self._chunks(own):
            data = own.batch(part)
            probe = local.ask(self.learner, models[part])
            moved.append(local.answer(self.learner, probe, data, place[part]))
            lost = ~np.isfinite(self.learner.loss(moved[-1], data))
            if lost.any():
                target = self.rows.ids[int(self.rows.targets[part][np.argmax(lost)])]
                raise diverged(r, target, f"in the local step, {local.advice()}")
        return np.concatenate(moved)

    def step(self, models: Array, rows: Slice, place: Stream) -> Array:
        """(D, size) where the proposer's step on these devices' rows takes these models."""
        moved = []
        for part in self._chunks(rows):
            probe = self.proposer.ask(self.learner, models[part])
            moved.append(
                self.proposer.answer(self.learner, probe, rows.batch(part), place[part])
            )
        return np.concatenate(moved)

    def score(self, models: Array, rows: Slice) -> Array:
        """(D, K) the losses of K models on these devices' rows."""
        losses = [
            self.learner.loss(models[None], rows.batch((part, None)))
            for part in self._chunks(rows)
        ]
        return np.concatenate(losses)

    def _chunks(self, rows: Slice) -> list[slice]:
        """Targets in parts whose gathered rows fit into CHUNK bytes."""
        longest = int(rows.rows.counts[rows.which].max(initial=1))
        longest += self._extra
        each = 8 * (rows.rows.features + 2) * longest * max(1, rows.which[0].size)
        return batches(len(rows.which), each, CHUNK)

    def _proposals(self, part: slice, asked: Slice, peers: IntArray, r: int) -> Array:
        """(C, S, size) what these targets' peers answer."""
        targets = self.rows.targets[part, None]
        place = stream(self.task.seed, "answer", r).at(targets, peers[part])
        answer = self.proposer.answer(
            self.learner, self._probe(part), asked.batch(part), place
        )
        return np.asarray(answer)

    def _probe(self, part: slice) -> Probe:
        return self.proposer.ask(self.learner, self.models[part, None])


def somebody(asked: Slice, size: int, answered: Callable[[], Array]) -> Array:
    """(T, S, size) what peers answer, with NaN for nobody; not computed where nobody is there."""
    nobody = (asked.which < 0)[:, :, None]
    if nobody.all():
        return np.full((*asked.which.shape, size), np.nan)
    return np.where(nobody, np.nan, answered())


def column(own: Slice) -> Slice:
    """Targets' own rows as those of one peer each."""
    return Slice(own.rows, own.which[:, None])
