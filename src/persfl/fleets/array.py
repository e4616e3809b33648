"""The fast fleet: all pairs of a round at once, on arrays."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from persfl.errors import CannotMix, InputError
from persfl.fleets.home import Home, Slice, check_parts, diverged, no_models_yet
from persfl.fleets.loop import LoopFleet, learners_of, listed
from persfl.fleets.pairs import pair_kernel
from persfl.fleets.start import handed_in, starting_model
from persfl.fleets.steps import Steps
from persfl.seeds import Stream, stream
from persfl.traits import has_gradients, has_statistics, has_tensors
from persfl.types import Answers, Array, Choice, IntArray, Kept, PublicProposer

CHUNK = 32 * 2**20  # bytes of gathered rows at a time; small enough to stay in cache


class ArrayFleet:
    """Devices in this process whose models are rows of one array.

    Takes what `LoopFleet` takes and gives the same rounds. Learners whose models are not vectors (scikit-learn estimators, or one
    learner per target) are asked pair by pair, by a LoopFleet inside.

    The adopted answers are computed a second time instead of being kept: an answer is a function of model, peer and round, and
    keeping all of them would take targets x peers models of memory.

    >>> from persfl import Best, GradientStep, Linear, Uniform, personalize
    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(n=50, clusters=2, rows=10, features=5, seed=0)
    >>> fleet = ArrayFleet(devices, learner=Linear(), proposer=GradientStep(0.05))
    >>> for round_ in personalize(fleet, sampler=Uniform(10), adopter=Best(), rounds=200): pass
    >>> bool(((fleet.models - devices.true_weights) ** 2).sum(axis=1).max() < 1e-3)
    True
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
        device: str | None = None,
        dtype: str | None = None,
        compiled: bool = False,
    ) -> None:
        self._loop: LoopFleet | None = None
        self._tensors: Any = None
        self._steps: Steps | None = None
        self.learner, self.proposer, self.local, self.seed = learner, proposer, local, seed
        if isinstance(learner, (list, tuple)) or not has_gradients(learner):
            if device not in (None, "cpu"):
                raise InputError(f"device={device!r} needs steps of Linear or Network. Got {learner!r}: leave it out.")
            self._loop = LoopFleet(
                devices,
                learner=learner,
                proposer=proposer,
                targets=targets,
                seed=seed,
                start=start,
                holdout=holdout,
                local=local,
                n_jobs=n_jobs,
            )
            self.home = self._loop.home
            return
        check_parts([learner], proposer, local)
        self.home = Home(devices, targets=targets, holdout=holdout, seed=seed)
        self.home.serve([learner])
        self._kernel: Any = None
        self._asked_for = (device, dtype, compiled)
        self._start = start
        self._models: Array | None = None
        if self.home.source is None:
            self._begin()

    n = property(lambda self: self.home.n)
    targets = property(lambda self: self.home.targets)
    ids = property(lambda self: self.home.ids)

    @property
    def models(self) -> Any:
        """(T, size) one model per target, in the order of `targets`."""
        if self._loop is not None:
            return self._loop.models
        if self._models is None:
            raise no_models_yet()
        return self._models if self._tensors is None else self._tensors.models

    @models.setter
    def models(self, models: Any) -> None:
        if self._loop is not None:
            self._loop.models = models
            return
        count = len(self.targets)
        given = handed_in(listed(models), learners_of(self.learner, count), self.home.scoring.rows.features)
        self._hold(np.stack(given or []))

    def _hold(self, models: Array) -> None:
        self._models = models
        if self._tensors is not None:
            self._tensors.models = models

    def observe(self, r: int) -> None:
        """Let data arrive for round `r`."""
        if self._loop is not None:
            self._loop.observe(r)
            return
        self.home.observe(r)
        if self._models is None:
            self._begin()

    def probe(self, peers: IntArray, r: int) -> Answers:
        """Ask every peer, score every answer on the asker's rows."""
        if self._loop is not None:
            return self._loop.probe(peers, r)
        self._r = r
        if self._tensors is not None:
            return self.home.judge(self._tensors.answers(peers, r), peers, r, self.proposer.advice)
        rows = self.home.peers(peers)
        if self._kernel is not None:
            answers = self._kernel.answers(rows, self.home.scoring, self.models)
        else:
            answers = self._answers(rows, peers)
        return self.home.judge(answers, peers, r, self.proposer.advice)

    def keep(self, peers: IntArray, r: int) -> Kept:
        """Remember the steps of the peers just asked, and every target's own; from now on choices are made among those."""
        if self._loop is not None:
            return self._loop.keep(peers, r)
        models = self.models
        if self._steps is None:
            self._steps = Steps(targets=self.targets, start=models)
        own = self._own_answers()
        return self._steps.keep(peers, models, self._asked(peers, self.home.peers(peers)), own)

    def own_lengths(self, r: int) -> Array:
        """(T,) how far the proposer's step on their own rows would take the targets; NaN where a length has no meaning."""
        if self._loop is not None:
            return self._loop.own_lengths(r)
        self._r = r
        probe = self.proposer.ask(self.learner, self.models)
        return np.asarray(self.proposer.length(self.learner, probe, self._own_answers()))

    def _own_answers(self) -> Array:
        """(T, size) where the proposer's step on their own rows would take the targets."""
        return self._asked(self.targets[:, None], self.home.training)[:, 0]

    @property
    def kept(self) -> dict[str, Any] | None:
        """The kept steps as plain arrays, for going on later; None where nothing was kept."""
        if self._loop is not None:
            return self._loop.kept
        return None if self._steps is None else self._steps.to_arrays()

    @kept.setter
    def kept(self, arrays: dict[str, Any] | None) -> None:
        if self._loop is not None:
            self._loop.kept = arrays
            return
        self._steps = None if arrays is None else Steps.from_arrays(arrays, self.targets, self.models.shape[1])

    def _asked(self, peers: IntArray, rows: Slice) -> Array:
        """(T, S, size) what peers answer from these rows; NaN where there is nobody."""
        rows = Slice(rows.rows, rows.which.reshape(peers.shape))
        nobody = (rows.which < 0)[:, :, None]
        if not peers.shape[1] or nobody.all():
            return np.full((*peers.shape, self.models.shape[1]), np.nan)
        found = self._answered(rows, peers) if self._tensors is None else self._tensors.proposals(peers, rows, self._r)
        return np.where(nobody, np.nan, found)

    def _answered(self, rows: Slice, peers: IntArray) -> Array:
        """(T, S, size) what peers answer, on arrays."""
        if self._kernel is not None:
            return np.asarray(self._kernel.proposals(rows, self.home.scoring, self.models))
        return np.concatenate([self._proposals(part, rows, peers) for part in self._chunks(rows)])

    def adopt(self, choice: Choice) -> None:
        """Replace every target's model by the mix it chose, then take its local step."""
        if self._loop is not None:
            self._loop.adopt(choice)
            return
        if self._tensors is not None:
            if self._steps is not None:
                self._tensors.hold(self._steps.moved_by(self.models, choice))
            else:
                self._tensors.adopt(choice, self._r)
            if self.local is not None:
                self._hold(np.ascontiguousarray(self._local(self.models)))
            return
        models = self.models
        if self._steps is not None:
            models = self._steps.moved_by(models, choice)
        elif choice.peers.shape[1]:
            proposals = self._answered(self.home.peers(choice.peers), choice.peers)
            if choice.peers.shape[1] == 1 and (choice.weights == 1.0).all():
                models = np.ascontiguousarray(proposals[:, 0])
            else:
                everything = np.concatenate([models[:, None], proposals], axis=1)
                models = self.learner.mix(everything, np.concatenate([choice.stay[:, None], choice.weights], axis=1))
        if has_statistics(self.learner):
            own = self.home.training
            models = np.concatenate([self.learner.settled(models[part], own.batch(part)) for part in self._chunks(own)])
        if self.local is not None:
            models = self._local(models)
        self._models = np.ascontiguousarray(models)

    def stepped(self, models: Array, who: IntArray | None, place: Stream) -> Array:
        """(D, size) where the proposer's step on their rows takes devices `who` from `models`, one each; they need not be targets.

        With None the targets step, on the rows they do not hold out. What baselines are made of: rows must stay, and randomness is
        drawn at `place`, one per device.
        """
        self._need_vectors()
        rows = self.home.training if who is None else Slice(self.home.static, who)
        if self._tensors is not None:
            return np.asarray(self._tensors.stepped(models, rows, place))
        moved = []
        for part in self._chunks(rows):
            probe = self.proposer.ask(self.learner, models[part])
            moved.append(self.proposer.answer(self.learner, probe, rows.batch(part), place[part]))
        return np.concatenate(moved)

    def scored(self, models: Array, who: IntArray | None = None) -> Array:
        """(D, K) the losses of K models on the rows of devices `who`, or on those the targets score by; inf where one overflows."""
        self._need_vectors()
        rows = self.home.scoring if who is None else Slice(self.home.static, who)
        if self._tensors is not None:
            return np.asarray(self._tensors.scored(models, rows))
        losses = [self.learner.loss(models[None], rows.batch((part, None))) for part in self._chunks(rows)]
        return np.concatenate(losses)

    def _need_vectors(self) -> None:
        if self._loop is not None:
            raise cannot_share(self.learner)

    def _choose_engine(self) -> None:
        """Tensors where they were asked for or the learner is made of them, else compiled code where there is some."""
        device, dtype, compiled = self._asked_for
        if any(self._asked_for) or has_tensors(self.learner):
            from persfl.fleets.tensors import tensor_pairs

            self._tensors = tensor_pairs(
                self.home,
                self.learner,
                self.proposer,
                device=device or "cpu",
                dtype=dtype,
                seed=self.seed,
                compiled=compiled,
            )
        if self._tensors is None:
            self._kernel = pair_kernel(self.learner, self.proposer)

    def _begin(self) -> None:
        self._choose_engine()
        own = self.home.training
        if isinstance(self.proposer, PublicProposer):
            self.proposer.check_features(own.rows.features)
        given = handed_in(self._start, learners_of(self.learner, len(self.targets)), own.rows.features)
        if given is not None:
            self._hold(np.stack(given))
            return
        at = stream(self.seed, "start").at(self.targets)
        self._hold(
            np.concatenate([starting_model(self.learner, own.batch(part), at[part], self._start) for part in self._chunks(own)])
        )

    def _chunks(self, rows: Slice) -> list[slice]:
        """Targets in parts whose gathered rows fit into CHUNK bytes."""
        extra = self.proposer.extra_rows if isinstance(self.proposer, PublicProposer) else 0
        longest = int(rows.rows.counts[rows.which].max(initial=1)) + extra
        each = 8 * (rows.rows.features + 2) * longest * max(1, rows.which[0].size)
        size = max(1, CHUNK // each)
        return [slice(i, i + size) for i in range(0, len(rows.which), size)]

    def _proposals(self, part: slice, rows: Slice, peers: IntArray) -> Array:
        """(C, S, size) what these targets' peers answer."""
        place = stream(self.seed, "answer", self._r).at(self.targets[part, None], peers[part])
        probe = self._probe(part)
        return np.asarray(self.proposer.answer(self.learner, probe, rows.batch(part), place))

    def _probe(self, part: slice) -> Any:
        return self.proposer.ask(self.learner, self.models[part, None])

    def _answers(self, rows: Slice, peers: IntArray) -> Answers:
        losses, lengths = [], []
        for part in self._chunks(rows):
            proposals = self._proposals(part, rows, peers)
            everything = np.concatenate([self.models[part, None], proposals], axis=1)
            loss = self.learner.loss(everything, self.home.scoring.batch((part, None)))
            loss[:, 1:][rows.which[part] < 0] = np.inf
            losses.append(loss)
            length = self.proposer.length(self.learner, self._probe(part), proposals)
            lengths.append(np.where(rows.which[part] < 0, np.nan, length))
        return Answers(np.concatenate(losses), np.concatenate(lengths))

    def _local(self, models: Array) -> Array:
        own = self.home.training
        place = stream(self.seed, "local", self._r).at(self.targets)
        moved = []
        for part in self._chunks(own):
            data = own.batch(part)
            moved.append(self.local.answer(self.learner, self.local.ask(self.learner, models[part]), data, place[part]))
            lost = ~np.isfinite(self.learner.loss(moved[-1], data))
            if lost.any():
                target = self.ids[int(self.targets[part][np.argmax(lost)])]
                raise diverged(self._r, target, f"in the local step, {self.local.advice()}")
        return np.concatenate(moved)


def cannot_share(learner: Any) -> CannotMix:
    """The one sentence for shared models of a family whose models are not vectors."""
    return CannotMix(
        f"shared models must be vectors that can be averaged, such as those of Linear or Network. Got {learner!r}: "
        "compare it with local(...), pooled(...) or personalize(...)."
    )
