"""Private as a method: any of a few others, with noise on everything that leaves a device.

It simulates what protected devices do over a federation, with all rows in one place, to see what
protection costs before anybody joins. A device's own rows refine its model at home, without noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from persfl.checks import one_of, real, whole
from persfl.device_checks import refuse_rowless
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.learners.linear import Linear
from persfl.methods.local_task import LocalTask
from persfl.methods.method_fields import MethodSettings, setting
from persfl.methods.private.private_budget import RunBudget
from persfl.methods.private.private_units import (
    LABEL,
    centred_units,
    column_names,
    declared_units,
    noised_units,
    table_ranges,
)
from persfl.methods.private.random_trees import grows_trees
from persfl.methods.protocol import Method, Needs, Task
from persfl.privacy import PLANNED, PrivacyBudget
from persfl.privacy.choice import prefers_sums
from persfl.privacy.mechanisms import product_clip
from persfl.training.state import Keep, State, peers_asked, rounds_for
from persfl.traits import has_gradients, has_statistics
from persfl.types import Array, Differentiable, Learner, Model
from persfl.units import Units

if TYPE_CHECKING:
    from persfl.methods.private.home_finish import Outside

BASES = ("blend", "mixed", "paper", "kin")


@dataclass(frozen=True)
class Private(MethodSettings):
    """A budget of privacy for every device: noise on all that leaves, none at home."""

    name: ClassVar[str] = "private"
    source: ClassVar[str] = (
        "Gaussian mechanism, Dwork et al. 2006; Gaussian differential privacy, Dong et al. 2022"
    )
    about: ClassVar[str] = (
        "Devices tell noised sums or steps within a privacy budget; own rows refine at home"
    )

    epsilon: float = setting(3.0, "the budget of every device, for all that it tells")
    delta: float = setting(1e-5, "the chance that the budget does not bound")
    clip: float | str = setting(
        "auto", "how long a row may be in units of the run; auto: as rows usually are"
    )
    base: str = setting(
        "blend", "what is made of noised sums: blend, mixed, paper or kin"
    )
    answers: int = setting(
        PLANNED, "noised steps of each device, where sums are not told"
    )
    ranges: Mapping[str, Sequence[float]] | str = setting(
        "table",
        "lowest and highest value of each column and of 'label'; table: as if owners had"
        " declared what the table has; noised: found out and paid for",
    )

    def needs(self) -> Needs:
        return Needs(
            units=("shared",),
            not_federated="There owners protect their rows themselves, by [privacy] in node.toml.",
            together=True,
            one_process=True,
            leaves=(
                "Sums over its rows, or a few steps on them, each row's part clipped, with noise:"
                " at most epsilon in all."
            ),
        )

    @property
    def budget(self) -> PrivacyBudget:
        """What each device may spend."""
        return PrivacyBudget(epsilon=self.epsilon, delta=self.delta)

    def units(
        self, rows: Devices, learner: Learner, *, labels: bool, seed: int
    ) -> Units:
        """Units that protected devices can agree on: from declared ranges, or paid for."""
        spend = RunBudget(self.budget, seed)
        if grows_trees(learner):
            raise InputError(
                "random trees ask within declared ranges: units must be 'raw', or left out."
            )
        if self.ranges == "noised":
            return noised_units(rows, spend, labels=labels)
        if isinstance(self.ranges, str):
            one_of("ranges", self.ranges, ("table", "noised"))
        ranges = table_ranges(rows) if isinstance(self.ranges, str) else self.ranges
        if self.tells_sums(learner, rows):
            return declared_units(rows, ranges, labels=labels)
        return centred_units(rows, ranges, spend, labels=labels)

    def run(
        self, task: Task, *, stage: str = "final", keep: Keep | None = None
    ) -> State:
        # many files, where it runs
        from persfl.methods.private.home_finish import finished_at_home
        from persfl.methods.single_fit import at_once

        one_of("base", self.base, BASES)
        whole("answers", self.answers, least=1, most=10_000)
        if self.clip != "auto":
            real("clip", self.clip, above=0)
        learner = task.learner
        rows = task.rows
        refuse_rowless(rows)
        if grows_trees(learner):
            assert isinstance(task, LocalTask)
            grown = self._trees(learner, rows, task)
            return at_once(task, grown, stage=stage, keep=keep)
        if not has_gradients(learner) or has_statistics(learner):
            raise InputError(_unprotected(learner))
        assert isinstance(task, LocalTask)
        told = self._outside(task, learner, rows)
        models = finished_at_home(learner, rows, told, task.seed)
        return at_once(task, models, stage=stage, keep=keep)

    def _trees(self, learner: Learner, rows: Devices, task: LocalTask) -> list[Model]:
        """Random trees with noised leaves."""
        from persfl.methods.private.private_trees import tree_models

        if self.ranges == "noised":
            raise InputError(
                "random trees need declared ranges: ranges must not be 'noised'."
            )
        ranges = dict(
            table_ranges(rows) if isinstance(self.ranges, str) else self.ranges
        )
        if task.classes:
            ranges[LABEL] = (0.0, task.classes - 1.0)
        declared_units(rows, ranges, labels=True)  # every column has one
        pairs = np.array([ranges[name] for name in [*column_names(rows), LABEL]])
        spend = RunBudget(self.budget, task.seed)
        return tree_models(learner, rows, pairs, task.classes, spend)

    def _outside(
        self, task: LocalTask, learner: Differentiable, rows: Devices
    ) -> Outside:
        """What devices are told of the others."""
        from persfl.methods.private import private_sums_run as from_sums
        from persfl.methods.private.common_descent import common_descent
        from persfl.methods.private.home_finish import CLEARLY, PLAINLY, Outside
        from persfl.methods.single_fit import for_everybody

        spend = RunBudget(self.budget, task.seed)
        if self.tells_sums(learner, rows):
            assert isinstance(learner, Linear)
            told = from_sums.told_products(rows, self.clip, spend)
            length = product_clip(rows.features)
            length = length if isinstance(self.clip, str) else self.clip
            deviation = spend.noise() * length**2
            pooled = from_sums.pooled_anchor(told, deviation, learner.intercept)
            loud = from_sums.is_loud(told, deviation)
            doubt = CLEARLY if loud else PLAINLY
            return Outside(pooled, self._based(told, task, learner), doubt)
        if self.base != "blend":
            raise InputError(self._too_many(task, learner))
        common = common_descent(learner, rows, self.clip, self.answers, spend)
        return Outside(np.asarray(for_everybody(common, len(rows))))

    def tells_sums(self, learner: Learner, rows: Devices) -> bool:
        """Whether devices tell sums, and not steps: by the loss and the numbers of columns,
        devices and rows, about which a fleet knows; where sums are pooled, noise averages out.
        """
        if not isinstance(learner, Linear) or learner.kind != "squared":
            return False
        total = float(f"{len(rows.y):.0e}")  # a round number, as everybody may know it
        about = total / np.sqrt(len(rows))
        return prefers_sums(rows.features, about, self.budget.multiplier())

    def _based(self, told: Array, task: LocalTask, learner: Linear) -> Array:
        from persfl.methods.kin import Kin
        from persfl.methods.mixed_effects import Mixed
        from persfl.methods.paper import Paper
        from persfl.methods.private.private_sums_run import (
            blend_anchor,
            method_anchor,
        )

        if self.base == "blend":
            return blend_anchor(told, learner, task.seed)
        based: Mapping[str, Method] = {"mixed": Mixed(), "paper": Paper(), "kin": Kin()}
        return method_anchor(told, task, based[self.base])

    def _too_many(self, task: LocalTask, learner: Learner) -> str:
        """Why a method whose devices are asked one by one does not fit."""
        asked = peers_asked("auto", task.n) * rounds_for("auto", learner)
        if self.base == "mixed":
            asked = len(task.rows.y) // max(task.n, 1)
        return (
            f"{self.base} asks each device about {asked:,} questions here, where sums do not do,"
            f" and epsilon={self.epsilon:g} is planned for {self.answers}: base='blend' asks"
            f" {self.answers}."
        )


def _unprotected(learner: Learner) -> str:
    """Why models of a learner cannot be protected."""
    return (
        "private models are linear, networks without running statistics (BatchNorm), or trees and"
        " forests, which get random questions. Boosting looks at rows again and again to choose its"
        f" questions, which no budget pays for. Got {learner!r}."
    )
