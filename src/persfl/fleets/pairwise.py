"""The reference engine: one pair after the other, any learner, nothing clever."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np
from joblib import Parallel, delayed

from persfl.checks import refuse_strangers
from persfl.errors import InputError, PersflWarning
from persfl.fleets.engine import EngineTask, Slice, starting_model
from persfl.fleets.kept_steps import as_vector, vectors
from persfl.fleets.refusals import cannot_share, diverged, refuse_no_jobs
from persfl.seeds import Stream, stream
from persfl.traits import has_gradients, has_statistics
from persfl.types import (
    Answers,
    Array,
    Choice,
    Data,
    IntArray,
    Learner,
    Model,
    Models,
    Probe,
    Proposal,
    Proposer,
)

T = TypeVar("T")


class Pairwise:
    """Asks one by one; keeps the answers of a round until the next one."""

    def __init__(self, task: EngineTask, n_jobs: int | None = 1) -> None:
        refuse_no_jobs(n_jobs)
        self.task = task
        self.rows = task.rows
        self.learners = task.learners
        self.proposer = task.proposer
        self.n_jobs = n_jobs
        self.models: Models = []
        self._proposals: dict[tuple[int, int], Proposal] = {}
        self._failed: set[int] = set()
        self._reason = ""

    def started(self, start: str | None) -> list[Model]:
        """The targets' first models by this rule."""
        own = self.rows.training
        targets = self.rows.targets
        places = [stream(self.task.seed, "start", int(target)) for target in targets]
        names = [self.rows.ids[int(target)] for target in targets]
        work = (
            (learner, own[t], places[t], start, names[t])
            for t, learner in enumerate(self.learners)
        )
        return self._map(_started, work)

    def answers(self, peers: IntArray, asked: Slice, r: int) -> Answers:
        """Losses and lengths of all pairs; the answers are remembered."""
        refuse_strangers(peers, self.rows.n)
        losses = np.full((len(peers), peers.shape[1] + 1), np.inf)
        lengths = np.full(peers.shape, np.nan)
        probes = [
            self.proposer.ask(*both)
            for both in zip(self.learners, self.models, strict=True)
        ]
        pairs = [(int(t), int(s)) for t, s in np.argwhere(asked.which >= 0)]
        work = (
            (
                self.proposer,
                self.learners[t],
                probes[t],
                asked[t, s],
                self.rows.scoring[t],
                self._stream(r, t, int(peers[t, s])),
            )
            for t, s in pairs
        )
        self._reason = ""
        self._proposals = {}
        for (t, s), answer in zip(pairs, self._map(_answer, work), strict=True):
            proposal, losses[t, s + 1], lengths[t, s], trouble = answer
            peer = int(peers[t, s])
            self._proposals[t, peer] = proposal
            if trouble:
                failed = f"device {self.rows.ids[peer]!r} failed with {trouble}"
                self._reason = self._reason or failed
                self._warn_once(peer, trouble)
        for t, (learner, model) in enumerate(
            zip(self.learners, self.models, strict=True)
        ):
            losses[t, 0] = learner.loss(model, self.rows.scoring[t])
        return Answers(losses, lengths)

    def advice(self) -> str:
        """What went wrong first in the last round, else what to change."""
        return self._reason or self.proposer.advice()

    def proposals(self, peers: IntArray, asked: Slice, r: int) -> Array:
        """(T, S, size) what the peers just asked have answered."""
        nothing = np.full(vectors(self.models).shape[1], np.nan)
        found = []
        for t, row in enumerate(peers):
            answers = [self._proposals.get((t, int(peer))) for peer in row]
            found.append(
                np.stack(
                    [*(as_vector(answer, nothing) for answer in answers), nothing]
                )[:-1]
            )
        return np.stack(found)

    def own_answers(self, r: int) -> Array:
        """(T, size) where the proposer's step on their own rows would take the targets."""
        return np.stack([self._own_answer(t, r)[1] for t in range(len(self.models))])

    def own_lengths(self, r: int) -> Array:
        """(T,) how far that is."""
        found = np.full(len(self.learners), np.nan)
        for t, learner in enumerate(self.learners):
            found[t] = self.proposer.length(learner, *self._own_answer(t, r))
        return found

    def _own_answer(self, t: int, r: int) -> tuple[Probe, Proposal]:
        """What target `t` would ask now, and what its own rows answer."""
        learner = self.learners[t]
        place = self._stream(r, t, int(self.rows.targets[t]))
        probe = self.proposer.ask(learner, self.models[t])
        return probe, self.proposer.answer(learner, probe, self.rows.training[t], place)

    def adopt(self, choice: Choice, r: int) -> None:
        """Every target's model becomes the mix it chose."""
        models: list[Model] = []
        for t, model in enumerate(self.models):
            parts = [(float(choice.stay[t]), model)] if choice.stay[t] > 0 else []
            shares = zip(
                choice.peers[t].tolist(), choice.weights[t].tolist(), strict=True
            )
            parts += [
                (weight, self._proposal(t, peer))
                for peer, weight in shares
                if weight > 0
            ]
            weights = [w for w, _ in parts]
            pieces = [p for _, p in parts]
            models.append(
                pieces[0] if len(parts) == 1 else self._mixed(t, pieces, weights)
            )
        self._settle(models, r)

    def hold(self, models: Array, r: int) -> None:
        """These vectors from now on, as the numbers that models are."""
        self._settle(list(models.astype(self.models[0].dtype)), r)

    def _settle(self, models: list[Model], r: int) -> None:
        """Renew running statistics and take local steps, then hold the models."""
        own = self.rows.training
        local = self.task.local
        models = [
            learner.settled(model, own[t]) if has_statistics(learner) else model
            for t, (learner, model) in enumerate(
                zip(self.learners, models, strict=True)
            )
        ]
        if local is not None:
            models = [self._local(local, t, model, r) for t, model in enumerate(models)]
            for t, model in enumerate(models):
                if not np.isfinite(self.learners[t].loss(model, own[t])):
                    target = self.rows.ids[int(self.rows.targets[t])]
                    raise diverged(r, target, f"in the local step, {local.advice()}")
        self.models = models

    def step(self, models: Array, rows: Slice, place: Stream) -> Array:
        """(D, size) where the proposer's step takes these models, device by device."""
        learner = self._only()
        moved = []
        for i in range(len(rows.which)):
            probe = self.proposer.ask(learner, models[i])
            moved.append(
                self.proposer.answer(
                    learner, probe, rows[i], Stream(int(place.keys[i]))
                )
            )
        return np.stack(moved)

    def score(self, models: Array, rows: Slice) -> Array:
        """(D, K) the losses of K models, one by one."""
        learner = self._only()
        return np.array(
            [
                [learner.loss(model, rows[i]) for model in models]
                for i in range(len(rows.which))
            ]
        )

    def _only(self) -> Learner:
        """The one learner of all targets, whose models are vectors."""
        learner = self.task.learner
        if isinstance(learner, Sequence) or not has_gradients(learner):
            raise cannot_share(learner)
        return learner

    def _stream(self, r: int, t: int, peer: int) -> Stream:
        return stream(self.task.seed, "answer", r, int(self.rows.targets[t]), peer)

    def _map(
        self, job: Callable[..., T], work: Iterable[tuple[object, ...]]
    ) -> list[T]:
        if self.n_jobs == 1:
            return [job(*piece) for piece in work]
        return list(
            Parallel(n_jobs=self.n_jobs)(delayed(job)(*piece) for piece in work)
        )

    def _proposal(self, t: int, peer: int) -> Proposal:
        if (t, peer) not in self._proposals:
            target = self.rows.ids[int(self.rows.targets[t])]
            raise InputError(
                f"target {target!r} cannot adopt from device {self.rows.ids[peer]!r}: it was not"
                " asked."
            )
        return self._proposals[t, peer]

    def _mixed(self, t: int, pieces: list[Model], weights: list[float]) -> Model:
        arrays = all(isinstance(piece, np.ndarray) for piece in pieces)
        return self.learners[t].mix(
            np.stack(pieces) if arrays else pieces, np.array(weights)
        )

    def _local(self, local: Proposer, t: int, model: Model, r: int) -> Model:
        learner = self.learners[t]
        place = stream(self.task.seed, "local", r, int(self.rows.targets[t]))
        return local.answer(
            learner, local.ask(learner, model), self.rows.training[t], place
        )

    def _warn_once(self, peer: int, trouble: str) -> None:
        if peer not in self._failed:
            self._failed.add(peer)
            said = f"device {self.rows.ids[peer]!r} gave no usable answer: {trouble}"
            warnings.warn(said, PersflWarning, stacklevel=6)


def _answer(
    proposer: Proposer,
    learner: Learner,
    probe: Probe,
    data: Data,
    own: Data,
    place: Stream,
) -> tuple[Proposal, float, float, str]:
    """One peer's answer and its score: proposal, loss, length, and what went wrong.

    A bad peer costs only its own answer.
    """
    import sklearn

    try:
        # Rows were checked when they came in, parameters at the first fit: scikit-learn need not
        # do it again for every answer.
        with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):
            proposal = proposer.answer(learner, probe, data, place)
            loss = float(learner.loss(proposal, own))
            return proposal, loss, float(proposer.length(learner, probe, proposal)), ""
    except Exception as error:
        return None, np.inf, np.nan, f"{type(error).__name__}: {error}"


def _started(
    learner: Learner, data: Data, place: Stream, start: str | None, device: Hashable
) -> Model:
    """A target's first model."""
    try:
        return starting_model(learner, data, place, start)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"device {device!r} cannot start from its own rows: {error} Hand in a model with"
            " start=."
        ) from error
