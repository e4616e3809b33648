"""What a fit is asked beside its rows (`FitSettings`), and what stays the same through all its
stages (`Setup`): the model family, the settings, the table, the method.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from persfl.checks import one_of, real, whole
from persfl.errors import InputError
from persfl.learners.fleet_mix import FleetMix, ModelBank
from persfl.learners.linear import Linear
from persfl.learners.near_rows import NearRows
from persfl.learners.network import Network
from persfl.learners.shared_trees import BoostedModels
from persfl.methods import Method, cannot_run
from persfl.public_points import public_points
from persfl.training.state import KIN_ROUNDS, STEP_ROUNDS, peers_asked, rounds_for
from persfl.traits import has_gradients, has_tensors, traits_of
from persfl.types import Array, Learner, Model
from persfl.units import KINDS, Units

if TYPE_CHECKING:
    from persfl.devices import Devices
    from persfl.evaluation.row_order import RowOrder
    from persfl.fitting.schema import TableSchema
    from persfl.methods.local_task import LocalTask

# methods that make models without a fleet that takes steps: networks where they are computed,
# others on this processor
_ON_THIS_PROCESSOR = ("blend", "own", "pooled", "fine-tuned", "clustered", "private")
# numbers touched by a run that may be repeated without being noticed
CHEAP = 3e7
# made-up public points, where a base estimator needs some and none are handed in
POINTS = 100
# one per device: vectors, or whatever the learner makes
Models = Array | list[Model] | BoostedModels | FleetMix | NearRows


@dataclass(frozen=True, eq=False)
class FitSettings:
    """The settings that are no method's; `persfl.PersonalizedRegressor` says what each means."""

    units: str = "auto"
    public: Array | int | None = None
    """Points in the table's own units, or how many to make up."""
    holdout: float = 0.25
    trials: int | str = "auto"
    fallback: bool = False
    unseen: str = "pooled"
    window: int | None = None
    ordered: bool = False
    blocks: str | None = None
    """The column whose keys are hidden together, where it has a name."""
    time: str | None = None
    """The column that says when a row was, likewise."""
    gap: float | str | None = None
    horizon: float | str | None = None
    compute: str | None = None
    precision: str = "float32"
    memory: float | None = None
    n_jobs: int | None = 1
    seed: int = 0

    def check(self, method: Method, learner: Learner) -> None:
        """Stop where a setting makes no sense, for this method and these models."""
        one_of("units", self.units, ["auto", *KINDS])
        one_of("unseen", self.unseen, ["pooled", "error"])
        if real("holdout", self.holdout, least=0.0) >= 1:
            raise InputError(f"holdout must be a share below 1. Got {self.holdout}.")
        if self.window is not None:
            whole("window", self.window, least=1)
        if not self.ordered and (self.gap or self.horizon is not None):
            raise InputError(
                "gap and horizon are for rows in the order of time. Say time=... (command line:"
                " --time) or ordered=True."
            )
        trouble = cannot_run(method, learner)
        if trouble:
            raise InputError(trouble)
        usual = method.needs().units
        if self.units not in ("auto", *usual):
            raise InputError(
                f"{method.name} goes by {' or '.join(usual)} units. Got units={self.units!r}:"
                " leave it out, or take another method such as method='paper'."
            )
        here = method.name in _ON_THIS_PROCESSOR and not has_tensors(learner)
        if self.compute is not None and here:
            raise InputError(
                f"compute is for networks and for methods that take steps with a fleet, such as"
                f" method='paper'; {method.name} of other models computes on this processor. Leave"
                " it out."
            )
        if self.precision != "float32" or self.memory is not None:
            self._check_networks(learner)

    def _check_networks(self, learner: Learner) -> None:
        """Stop where what only networks have makes no sense."""
        from persfl.fleets.engine_choice import Wishes  # engines take long to load

        Wishes(self.compute, precision=self.precision, memory=self.memory)
        if not isinstance(learner, Network):
            raise InputError(
                f"precision and memory are for networks. Got {learner!r}: leave them out."
            )


@dataclass(frozen=True, eq=False)
class Setup:
    """What every stage of a fit is given."""

    learner: Learner
    settings: FitSettings
    schema: TableSchema
    method: Method

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
        from persfl.methods.private.private_method import Private

        scaled = not self.classes and traits_of(self.learner).task != "counts"
        wanted = kind or self.kind
        if isinstance(self.method, Private) and wanted == "shared":
            return self.method.units(rows, self.learner, labels=scaled, seed=self.seed)
        return Units.of(rows, kind or self.kind, labels=scaled)

    def public(self, rows: Devices, kind: str | None = None) -> Array | None:
        """Public points in the units of a run; None where the learner takes steps instead."""
        if has_gradients(self.learner):
            return None
        points = self.settings.public
        kind = kind or self.kind
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
        work = rows.X.size * self.learner.classes * self._questions(len(rows))
        return most if work <= CHEAP else 1

    def _questions(self, n: int) -> int:
        """About how many questions a device asks in a run."""
        from persfl.methods import Blend, Kin

        if isinstance(self.method, Blend):
            return self.method.budget
        usual = KIN_ROUNDS if isinstance(self.method, Kin) else STEP_ROUNDS
        return peers_asked("auto", n) * self.rounds(usual)

    def rounds(self, usual: int = STEP_ROUNDS) -> int:
        """How many rounds the method was told, or else the usual number."""
        told = self.method.get_params().get("rounds", "auto")
        return rounds_for(told, self.learner, usual)

    def task(
        self, inside: Devices, public: Array | None, order: RowOrder | None = None
    ) -> LocalTask:
        """What the method is given: rows in the units of the run."""
        compute = self.settings.compute
        learner = self.learner
        from persfl.methods.local_task import LocalTask

        memory = self.settings.memory
        if isinstance(learner, Network) and (compute or memory):
            precision = self.settings.precision
            learner = learner.on(compute or "cpu", precision=precision, memory=memory)
        return LocalTask(
            inside,
            learner,
            seed=self.seed,
            n_jobs=self.settings.n_jobs,
            compute=compute,
            classes=self.classes,
            public=public,
            ordered=self.settings.ordered,
            known=order,
        )


def chosen(
    which: NDArray[np.bool_], models: Array | list[Model], others: Models
) -> Models:
    """(devices,) these models where `which` says so, and the others elsewhere.

    >>> chosen(np.array([True, False]), ["a", "b"], ["c", "d"])
    ['a', 'd']
    """
    if isinstance(others, BoostedModels):
        vectors = np.where(which[:, None], models, others.vectors)
        return replace(others, vectors=vectors, alone=others.alone | which)
    if isinstance(others, NearRows):
        vectors = np.where(which[:, None], models, others.vectors)
        return replace(
            others, vectors=vectors, share=np.where(which, 0.0, others.share)
        )
    if isinstance(others, FleetMix):
        return replace(others, alone=_by_themselves(which, models, others.alone))
    if isinstance(models, np.ndarray):
        return np.where(which[:, None], models, others)
    pairs = zip(which, models, others, strict=True)
    return [mine if yes else other for yes, mine, other in pairs]


def _by_themselves(
    which: NDArray[np.bool_], models: Array | list[Model], nobody: ModelBank
) -> ModelBank:
    """The bank of the devices that go by these models."""
    at = np.flatnonzero(which)
    place = np.full(len(which), -1)
    place[at] = np.arange(len(at))
    return replace(nobody, models=tuple(models[i] for i in at.tolist()), which=place)
