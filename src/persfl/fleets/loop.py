"""The reference fleet: one pair after the other, any learner, nothing clever."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import sklearn
from joblib import Parallel, delayed

from persfl.devices import stranger
from persfl.errors import InputError, PersflWarning
from persfl.fleets.home import Home, check_parts, diverged, no_models_yet
from persfl.fleets.start import handed_in, starting_model
from persfl.fleets.steps import Steps, as_vector, vectors
from persfl.seeds import Stream, stream
from persfl.traits import has_statistics
from persfl.types import Answers, Array, Choice, Data, IntArray, Kept, PublicProposer


class LoopFleet:
    """Devices in this process, asked one by one.

    `devices`: what `Devices.of` takes, or a source (see `persfl.sources`). `learner`: one, or a list of one per target: a peer
    answers in the asker's family. `targets`: device ids (default: all). `start`: None (zeros for `Linear`, the own fit for
    `Estimator`), "zeros", "own", a model, or one per target. `holdout`: the share of a target's rows it scores by (0: all of them);
    the rest are what `local`, a proposer, trains on once a round. `n_jobs`: parallel answers through joblib.

    >>> from persfl import Best, Estimator, Refit, Uniform, personalize
    >>> from persfl.sources import clustered_regression
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> devices = clustered_regression(n=30, clusters=2, rows=10, features=2, seed=0)
    >>> public = np.random.default_rng(0).standard_normal((50, 2))
    >>> fleet = LoopFleet(devices, learner=Estimator(DecisionTreeRegressor(max_depth=3)), proposer=Refit(public), targets=[0])
    >>> losses = [float(round_.loss[0]) for round_ in personalize(fleet, sampler=Uniform(5), adopter=Best(), rounds=3)]
    >>> len(losses)
    3
    """

    def __init__(
        self,
        devices: Any,
        *,
        learner: Any,
        proposer: Any,
        targets: Sequence[Hashable] | None = None,
        seed: int = 0,
        start: Any = None,
        holdout: float = 0.0,
        local: Any = None,
        n_jobs: int | None = 1,
    ) -> None:
        self.home = Home(devices, targets=targets, holdout=holdout, seed=seed)
        self.learners = learners_of(learner, len(self.targets))
        check_parts(self.learners, proposer, local)
        if n_jobs == 0:
            raise InputError("n_jobs must be a number of processes, or -1 for all cores. Got 0.")
        self.home.serve(self.learners)
        self.proposer, self.local, self.seed, self.n_jobs = proposer, local, seed, n_jobs
        self._start = start
        self._models: list[Any] | None = None
        self._proposals: dict[tuple[int, int], Any] = {}
        self._failed: set[int] = set()
        self._steps: Steps | None = None
        if self.home.source is None:
            self._begin()

    n = property(lambda self: self.home.n)
    targets = property(lambda self: self.home.targets)
    ids = property(lambda self: self.home.ids)

    @property
    def models(self) -> list[Any]:
        """One model per target, in the order of `targets`."""
        if self._models is None:
            raise no_models_yet()
        return self._models

    @models.setter
    def models(self, models: Any) -> None:
        self._models = handed_in(listed(models), self.learners, self.home.scoring.rows.features)

    def observe(self, r: int) -> None:
        """Let data arrive for round `r`."""
        self.home.observe(r)
        if self._models is None:
            self._begin()

    def probe(self, peers: IntArray, r: int) -> Answers:
        """Ask every peer, score every answer on the asker's rows."""
        self._r = r
        if peers.max(initial=-1) >= self.n:
            raise stranger(int(peers.max()), self.n)
        rows = self.home.peers(peers)
        losses, lengths = np.full((len(peers), peers.shape[1] + 1), np.inf), np.full(peers.shape, np.nan)
        probes = [self.proposer.ask(learner, model) for learner, model in zip(self.learners, self.models, strict=True)]
        pairs = [(int(t), int(s)) for t, s in np.argwhere(rows.which >= 0)]
        answers = self._map(
            _answer,
            (
                (self.proposer, self.learners[t], probes[t], rows[t, s], self.home.scoring[t], self._stream(r, t, int(peers[t, s])))
                for t, s in pairs
            ),
        )
        reason = ""
        self._proposals = {}
        for (t, s), (proposal, loss, length, trouble) in zip(pairs, answers, strict=True):
            self._proposals[t, int(peers[t, s])] = proposal
            losses[t, s + 1], lengths[t, s] = loss, length
            if trouble:
                reason = reason or f"device {self.ids[int(peers[t, s])]!r} failed with {trouble}"
                self._warn_once(int(peers[t, s]), trouble)
        for t, (learner, model) in enumerate(zip(self.learners, self.models, strict=True)):
            losses[t, 0] = learner.loss(model, self.home.scoring[t])
        return self.home.judge(Answers(losses, lengths), peers, r, lambda: reason or self.proposer.advice())

    def keep(self, peers: IntArray, r: int) -> Kept:
        """Remember the steps of the peers just asked, and every target's own; from now on choices are made among those."""
        models = vectors(self.models)
        if self._steps is None:
            self._steps = Steps(targets=self.targets, start=models)
        answers = [[self._proposals.get((t, int(peer))) for peer in row] for t, row in enumerate(peers)]
        nothing = np.full(models.shape[1], np.nan)
        proposals = [np.stack([*(as_vector(answer, nothing) for answer in row), nothing])[:-1] for row in answers]
        own = [self._own_answer(t, r)[1] for t in range(len(models))]
        return self._steps.keep(peers, models, np.stack(proposals), np.stack(own))

    def own_lengths(self, r: int) -> Array:
        """(T,) how far the proposer's step on their own rows would take the targets; NaN where a length has no meaning."""
        found = np.full(len(self.targets), np.nan)
        for t, learner in enumerate(self.learners):
            found[t] = self.proposer.length(learner, *self._own_answer(t, r))
        return found

    def _own_answer(self, t: int, r: int) -> tuple[Any, Any]:
        """What target `t` would ask now, and what its own rows answer."""
        learner, place = self.learners[t], self._stream(r, t, int(self.targets[t]))
        probe = self.proposer.ask(learner, self.models[t])
        return probe, self.proposer.answer(learner, probe, self.home.training[t], place)

    @property
    def kept(self) -> dict[str, Any] | None:
        """The kept steps as plain arrays, for going on later; None where nothing was kept."""
        return None if self._steps is None else self._steps.to_arrays()

    @kept.setter
    def kept(self, arrays: dict[str, Any] | None) -> None:
        self._steps = None if arrays is None else Steps.from_arrays(arrays, self.targets, vectors(self.models).shape[1])

    def adopt(self, choice: Choice) -> None:
        """Replace every target's model by the mix it chose, then take its local step."""
        models: list[Any] = []
        if self._steps is not None:
            models = list(self._steps.moved_by(vectors(self.models), choice).astype(self.models[0].dtype))
        for t, model in enumerate(self.models if self._steps is None else ()):
            parts = [(float(choice.stay[t]), model)] if choice.stay[t] > 0 else []
            for peer, weight in zip(choice.peers[t].tolist(), choice.weights[t].tolist(), strict=True):
                if weight > 0:
                    parts.append((weight, self._proposal(t, peer)))
            weights, pieces = [w for w, _ in parts], [p for _, p in parts]
            models.append(pieces[0] if len(parts) == 1 else self._mixed(t, pieces, weights))
        models = [
            learner.settled(model, self.home.training[t]) if has_statistics(learner) else model
            for t, (learner, model) in enumerate(zip(self.learners, models, strict=True))
        ]
        if self.local is not None:
            models = [self._local(t, model) for t, model in enumerate(models)]
            for t, model in enumerate(models):
                if not np.isfinite(self.learners[t].loss(model, self.home.training[t])):
                    raise diverged(self._r, self.ids[int(self.targets[t])], f"in the local step, {self.local.advice()}")
        self._models = models

    def _begin(self) -> None:
        own = self.home.training
        given = handed_in(self._start, self.learners, own.rows.features)
        if isinstance(self.proposer, PublicProposer):
            self.proposer.check_features(own.rows.features)
        places = [stream(self.seed, "start", int(target)) for target in self.targets]
        self._models = given or self._map(
            _started,
            ((learner, own[t], places[t], self._start, self.ids[int(self.targets[t])]) for t, learner in enumerate(self.learners)),
        )

    def _stream(self, r: int, t: int, peer: int) -> Stream:
        return stream(self.seed, "answer", r, int(self.targets[t]), peer)

    def _map(self, job: Any, work: Any) -> list[Any]:
        if self.n_jobs == 1:
            return [job(*piece) for piece in work]
        return list(Parallel(n_jobs=self.n_jobs)(delayed(job)(*piece) for piece in work))

    def _proposal(self, t: int, peer: int) -> Any:
        if (t, peer) not in self._proposals:
            raise InputError(
                f"target {self.ids[int(self.targets[t])]!r} cannot adopt from device {self.ids[peer]!r}: it was not asked."
            )
        return self._proposals[t, peer]

    def _mixed(self, t: int, pieces: list[Any], weights: list[float]) -> Any:
        stacked = np.stack(pieces) if all(isinstance(piece, np.ndarray) for piece in pieces) else pieces
        return self.learners[t].mix(stacked, np.array(weights))

    def _local(self, t: int, model: Any) -> Any:
        learner = self.learners[t]
        place = stream(self.seed, "local", self._r, int(self.targets[t]))
        return self.local.answer(learner, self.local.ask(learner, model), self.home.training[t], place)

    def _warn_once(self, peer: int, trouble: str) -> None:
        if peer not in self._failed:
            self._failed.add(peer)
            warnings.warn(f"device {self.ids[peer]!r} gave no usable answer: {trouble}", PersflWarning, stacklevel=5)


def _answer(proposer: Any, learner: Any, probe: Any, data: Data, own: Data, place: Stream) -> tuple[Any, float, float, str]:
    """One peer's answer and its score: proposal, loss, length, and what went wrong (a bad peer costs only its own answer)."""
    try:
        # Rows were checked when they came in, parameters at the first fit: scikit-learn need not do it again for every answer.
        with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):
            proposal = proposer.answer(learner, probe, data, place)
            return proposal, float(learner.loss(proposal, own)), float(proposer.length(learner, probe, proposal)), ""
    except Exception as error:
        return None, np.inf, np.nan, f"{type(error).__name__}: {error}"


def _started(learner: Any, data: Data, place: Stream, start: Any, device: Hashable) -> Any:
    """A target's first model."""
    try:
        return starting_model(learner, data, place, start)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"device {device!r} cannot start from its own rows: {error} Hand in a model with start=.") from error


def listed(models: Any) -> list[Any]:
    """Models that somebody sets, as a list."""
    try:
        return list(models)
    except TypeError:
        raise InputError(f"models must be a list of one model per target. Got {models!r}.") from None


def learners_of(learner: Any, count: int) -> list[Any]:
    """One learner per target."""
    if not isinstance(learner, (list, tuple)):
        return [learner] * count
    if len(learner) != count:
        raise InputError(f"learner must be one learner or one per target ({count}). Got {len(learner)}.")
    return list(learner)
