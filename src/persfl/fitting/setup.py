"""What stays the same through all stages of a fit: the model family, the settings, the table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from persfl.adopters import Best
from persfl.checks import whole
from persfl.devices import Devices
from persfl.evaluation.rivals import own_fits
from persfl.fitting.schema import TableSchema
from persfl.fitting.settings import FitSettings
from persfl.learners import Linear
from persfl.methods.blend import blend_stage as blended
from persfl.proposers import GradientStep, Refit
from persfl.public_points import public_points
from persfl.rules import kin, members
from persfl.training import (
    KIN_ROUNDS,
    REFIT_ROUNDS,
    STEP_ROUNDS,
    Keep,
    Plan,
    State,
    peers_asked,
    peers_of,
    step_of,
    train,
)
from persfl.traits import has_gradients, traits_of
from persfl.types import Array, Learner, Model, Proposer
from persfl.units import Units

# numbers touched by a run that may be repeated without being noticed
CHEAP = 3e7
# made-up public points, where a base estimator needs some and none are handed in
POINTS = 100
Models = Array | list[Model]  # one per device: vectors, or whatever the learner makes


@dataclass(frozen=True, eq=False)
class Setup:
    """What every stage of a fit is given."""

    learner: Learner
    settings: FitSettings
    schema: TableSchema
    method: str

    @property
    def classes(self) -> int:
        return self.schema.labels.count

    @property
    def seed(self) -> int:
        return self.settings.seed

    @property
    def kind(self) -> str:
        """The kind of units that devices compare models in."""
        if self.settings.units != "auto":
            return self.settings.units
        return "shared" if has_gradients(self.learner) else "raw"

    def units(self, rows: Devices, kind: str | None = None) -> Units:
        """Units measured on these rows.

        Labels that are classes have none, and counts lose their meaning in any but their own.
        """
        scaled = not self.classes and traits_of(self.learner).task != "counts"
        return Units.of(rows, kind or self.kind, labels=scaled)

    def public(self, rows: Devices, kind: str | None = None) -> Array | None:
        """Public points in the units of a run; None where the learner takes steps instead."""
        if has_gradients(self.learner):
            return None
        points, kind = self.settings.public, kind or self.kind
        if points is None or isinstance(points, (int, np.integer)):
            count = POINTS if points is None else whole("public", points, least=1)
            if kind == "centred":
                rows = Units.of(rows, "centred", labels=False).inside(rows)
                return public_points(rows, count, seed=self.seed)
            groups = self.schema.categories
            points = public_points(rows, count, seed=self.seed, categories=groups)
        if kind == "raw":
            return points
        shared = Units.of(rows, "shared", labels=False)
        scale = Units.of(rows, kind, labels=False).scale
        return np.asarray((points - shared.mean) / scale)

    def rounds(self, method: str | None = None) -> int:
        """How many rounds a run has, by this method or another."""
        if self.settings.rounds != "auto":
            return int(self.settings.rounds)
        if not has_gradients(self.learner):
            return REFIT_ROUNDS
        return KIN_ROUNDS if (method or self.method) == "kin" else STEP_ROUNDS

    def trials(self, rows: Devices) -> int:
        """How many trial runs: as many as hold back every row once, where that is cheap."""
        settings = self.settings
        if not settings.holdout > 0:
            return 0
        # of ordered rows only the latest can be held back
        most = 1 if settings.ordered else max(1, round(1 / settings.holdout))
        if settings.trials != "auto":
            why = (
                "ordered rows" if settings.ordered else f"holdout={settings.holdout:g}"
            )
            return whole("trials", settings.trials, least=1, most=most, why=why)
        if not isinstance(self.learner, Linear):
            return 1
        asked = (
            settings.budget
            if self.method == "blend"
            else peers_asked("auto", len(rows)) * self.rounds()
        )
        return most if rows.X.size * self.learner.classes * asked <= CHEAP else 1

    def run(
        self, inside: Devices, public: Array | None, stage: str, keep: Keep | None
    ) -> State:
        """The run that the method asks for, on rows in the units of the run."""
        plan = self.plan(inside, public)
        if self.method != "blend":
            return train(inside, plan, stage=stage, keep=keep)
        return blended(
            inside,
            plan,
            budget=self.settings.budget,
            ordered=self.settings.ordered,
            classes=self.classes,
            public=public,
            stage=stage,
            keep=keep,
        )

    def sure(self, state: State, inside: Devices) -> Models:
        """The models of a run; where kin was looked for and not found, those of own rows."""
        models: Models = state.models
        if "member" in state.trust.notes:
            right = members(state.trust).right
            if not right.all():
                own = own_fits(self.learner, inside, self.seed)
                models = chosen(right, models, own)
        return models

    def plan(
        self, rows: Devices, public: Array | None, rounds: int | None = None
    ) -> Plan:
        """The loop's parts."""
        learner, settings, n = self.learner, self.settings, len(rows)

        def proposer(step: float) -> Proposer:
            if has_gradients(learner):
                return GradientStep(step)
            assert public is not None  # made for every learner without gradients
            soft = bool(self.classes) and traits_of(learner).loss == "log"
            return Refit(public, step_size=step, soft=soft)

        sampler = peers_of(settings.peers, n)
        adopter = Best() if settings.adopter is None else settings.adopter
        if self.method == "kin":
            rule = kin(peers_asked(settings.peers, n), steps=has_gradients(learner))
            sampler, adopter = rule.sampler, rule.adopter
        return Plan(
            learner,
            proposer,
            step_of(settings.step_size, learner, rows.features),
            sampler,
            adopter,
            self.rounds() if rounds is None else rounds,
            self.seed,
            settings.n_jobs,
            settings.compute,
        )


def chosen(which: NDArray[np.bool_], models: Models, others: Models) -> Models:
    """(devices,) these models where `which` says so, and the others elsewhere.

    >>> chosen(np.array([True, False]), ["a", "b"], ["c", "d"])
    ['a', 'd']
    """
    if isinstance(models, np.ndarray):
        return np.where(which[:, None], models, others)
    pairs = zip(which, models, others, strict=True)
    return [mine if yes else other for yes, mine, other in pairs]
