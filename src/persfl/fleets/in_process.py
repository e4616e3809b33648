"""Devices in this process: their rows, their targets' models, and an engine that computes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from persfl.errors import InputError
from persfl.fleets.engine import Engine, EngineTask, Slice
from persfl.fleets.kept_steps import Steps, vectors
from persfl.fleets.pairwise import Pairwise
from persfl.fleets.refusals import check_fleet_parts, no_models_yet
from persfl.fleets.rows import FleetRows
from persfl.traits import has_gradients
from persfl.types import (
    Answers,
    AnyArray,
    Array,
    Choice,
    IntArray,
    Kept,
    Learner,
    Model,
    Models,
    Proposer,
    PublicProposer,
)

if TYPE_CHECKING:
    from persfl.seeds import Stream


class InProcessFleet:
    """What `LoopFleet` and `ArrayFleet` make: one fleet, whose engine is chosen once.

    The engine is made when the first rows are there, since what a module takes is known from them.
    """

    def __init__(
        self,
        devices: object,
        *,
        learner: Learner | Sequence[Learner],
        proposer: Proposer,
        targets: Sequence[Hashable] | None,
        seed: int,
        start: str | Model | Models | None,
        holdout: float,
        local: Proposer | None,
        engine: Callable[[EngineTask], Engine],
    ) -> None:
        if isinstance(devices, FleetRows):
            self.home = devices
        else:
            self.home = FleetRows(devices, targets=targets, holdout=holdout, seed=seed)
        self.learners = learners_of(learner, len(self.targets))
        check_fleet_parts(self.learners, proposer, local)
        self.home.serve(self.learners)
        self.learner: Any = learner  # one, or one per target
        self.proposer = proposer
        self.local = local
        self.seed = seed
        self._start: Any = start  # models, or the name of a rule
        self._make = engine
        self._engine: Engine | None = None
        self._steps: Steps | None = None
        self._r = 0
        if self.home.source is None:
            self._begin()

    @property
    def n(self) -> int:
        """How many devices there are."""
        return self.home.n

    @property
    def targets(self) -> IntArray:
        """Whose models are personalized, as positions in `ids`."""
        return self.home.targets

    @property
    def ids(self) -> Sequence[Hashable]:
        """The devices' ids."""
        return self.home.ids

    @property
    def engine(self) -> Engine:
        """What computes; there once the first rows are."""
        if self._engine is None:
            raise no_models_yet()
        return self._engine

    @property
    def models(self) -> Any:
        """One model per target, in the order of `targets`: a list, or (T, size) of vectors."""
        return self.engine.models

    @models.setter
    def models(self, models: Models) -> None:
        features = self.home.scoring.rows.features
        engine = self.engine
        # of an array other engines keep a copy
        pairwise = isinstance(engine, Pairwise)
        if not pairwise and _are_vectors(models, self.learners, features):
            engine.models = models
            return
        engine.models = handed_in(_as_list(models), self.learners, features) or []

    def observe(self, r: int) -> None:
        """Let data arrive for round `r`."""
        self.home.observe(r)
        if self._engine is None:
            self._begin()

    def probe(self, peers: IntArray, r: int) -> Answers:
        """Ask every peer, score every answer on the asker's rows."""
        self._r = r
        engine = self.engine
        answers = engine.answers(peers, self.home.peers(peers), r)
        return self.home.judge(answers, peers, r, engine.advice)

    def keep(self, peers: IntArray, r: int) -> Kept:
        """Remember the steps of the peers just asked, and every target's own.

        From now on choices are made among those.
        """
        models = vectors(self.models)
        if self._steps is None:
            self._steps = Steps(targets=self.targets, start=models)
        proposals = self.engine.proposals(peers, self.home.peers(peers), r)
        return self._steps.keep(peers, models, proposals, self.engine.own_answers(r))

    @property
    def kept(self) -> dict[str, AnyArray] | None:
        """The kept steps as plain arrays, for going on later; None where nothing was kept."""
        return None if self._steps is None else self._steps.to_arrays()

    @kept.setter
    def kept(self, arrays: Mapping[str, AnyArray] | None) -> None:
        self._steps = None
        if arrays is not None:
            size = vectors(self.models).shape[1]
            self._steps = Steps.from_arrays(arrays, self.targets, size)

    def own_lengths(self, r: int) -> Array:
        """(T,) how far the proposer's step on their own rows would take the targets.

        NaN where a length has no meaning.
        """
        return self.engine.own_lengths(r)

    def adopt(self, choice: Choice) -> None:
        """Replace every target's model by the mix it chose, then take its local step."""
        engine = self.engine
        if self._steps is None:
            engine.adopt(choice, self._r)
        else:
            moved = self._steps.moved_by(vectors(engine.models), choice)
            engine.hold(moved, self._r)

    def stepped(self, models: Array, who: IntArray | None, place: Stream) -> Array:
        """(D, size) where the proposer's step on their rows takes devices `who` from `models`.

        One model each; they need not be targets. With None the targets step, on the rows they do
        not hold out. What baselines are made of: rows must stay, and randomness is drawn at
        `place`, one per device.
        """
        return self.engine.step(models, self._rows_of(who, self.home.training), place)

    def scored(self, models: Array, who: IntArray | None = None) -> Array:
        """(D, K) the losses of K models on the rows of devices `who`; inf where one overflows.

        With None on the rows that the targets score by.
        """
        return self.engine.score(models, self._rows_of(who, self.home.scoring))

    def _rows_of(self, who: IntArray | None, own: Slice) -> Slice:
        if who is None:
            return own
        if self.home.source is not None:
            raise InputError(
                "steps and scores of other devices need rows that stay. Got a stream."
            )
        return Slice(self.home.static, who)

    def _begin(self) -> None:
        """Make the engine, and the targets' first models."""
        task = EngineTask(
            self.home, self.learners, self.learner, self.proposer, self.local, self.seed
        )
        engine = self._make(task)
        features = self.home.training.rows.features
        if isinstance(self.proposer, PublicProposer):
            self.proposer.check_features(features)
        given = handed_in(self._start, self.learners, features)
        engine.models = engine.started(self._start) if given is None else given
        self._engine = engine


def _are_vectors(models: Models, learners: list[Learner], features: int) -> bool:
    """Whether these are sound models as one array, as rounds hand them in: checked all at once."""
    if not isinstance(models, np.ndarray) or models.ndim != 2:
        return False
    alike = all(learner is learners[0] for learner in learners)
    if not alike or not has_gradients(learners[0]) or len(models) != len(learners):
        return False
    first = np.asarray(learners[0].check(models[0], features))
    same = first.dtype == models.dtype and first.shape == models.shape[1:]
    apart = (
        models[:1] if not models.strides[0] else models
    )  # of one model for everybody
    return same and bool(np.isfinite(apart).all())


def _as_list(models: Models) -> list[Model]:
    """Models that somebody sets, as a list."""
    try:
        return list(models)
    except TypeError:
        raise InputError(
            f"models must be a list of one model per target. Got {models!r}."
        ) from None


def learners_of(learner: Learner | Sequence[Learner], count: int) -> list[Learner]:
    """One learner per target."""
    if not isinstance(learner, Sequence):
        return [learner] * count
    if len(learner) != count:
        raise InputError(
            f"learner must be one learner or one per target ({count}). Got {len(learner)}."
        )
    return list(learner)


def handed_in(
    start: object, learners: list[Learner], features: int
) -> list[Model] | None:
    """One checked model per target, or None where `start` names a rule instead."""
    if start is None or isinstance(start, str):
        return None
    count = len(learners)
    if isinstance(start, (list, tuple)) or (
        isinstance(start, np.ndarray) and start.ndim == 2
    ):
        if len(start) != count:
            raise InputError(
                f"start must hold one model per target ({count}). Got {len(start)}."
            )
        models = list(start)
    else:
        models = [start] * count
    return [
        learner.check(model, features)
        for learner, model in zip(learners, models, strict=True)
    ]
