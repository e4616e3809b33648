"""Own rows and nothing else: as a fit, and as the steps of a fleet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from persfl.adopters.best import Best
from persfl.checks import real
from persfl.device_checks import refuse_rowless
from persfl.errors import InputError
from persfl.evaluation.rivals import own_fits
from persfl.learners.linear import Linear
from persfl.learners.shrunk import shrunk
from persfl.loop import personalize
from persfl.methods.method_fields import MethodSettings, setting
from persfl.methods.protocol import Needs, Task
from persfl.methods.single_fit import at_once
from persfl.samplers.nobody import Nobody
from persfl.training.state import Keep, State
from persfl.types import Round

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet


def local(fleet: InProcessFleet, *, rounds: int, seed: int = 0) -> Iterator[Round]:
    """The fleet's `local` step, round after round.

    >>> from persfl import ArrayFleet, GradientStep, Linear
    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(n=2, rows=20, features=3)
    >>> fleet = ArrayFleet(
    ...     devices,
    ...     learner=Linear(),
    ...     proposer=GradientStep(0.1),
    ...     local=GradientStep(0.1),
    ... )
    >>> *_, last = local(fleet, rounds=200)
    >>> bool(last.loss.max() < 1e-6)
    True
    """
    if fleet.local is None:
        raise InputError(
            "training alone needs the fleet's local step. Make the fleet with"
            " local=GradientStep(...)."
        )
    return personalize(
        fleet, sampler=Nobody(), adopter=Best(), rounds=rounds, seed=seed
    )


@dataclass(frozen=True)
class Own(MethodSettings):
    """Every device's model from its own rows alone."""

    name: ClassVar[str] = "own"
    about: ClassVar[str] = "Every device alone, by a fit to its own rows"
    source: ClassVar[str] = (
        "ridge regression, Hoerl, Kennard 1970; leaving rows out, Allen 1974"
    )

    shrink: float | str = setting(
        "auto", "how far linear models are shrunk; auto: as leaving own rows out says"
    )

    def needs(self) -> Needs:
        usual = "Devices there shrink as leaving own rows out says: leave shrink out."
        return Needs(
            questions=True,
            not_federated="" if self.shrink == "auto" else usual,
            leaves="Nothing. Over a federation its model.",
        )

    def run(
        self, task: Task, *, stage: str = "final", keep: Keep | None = None
    ) -> State:
        learner = task.learner
        if task.together:
            refuse_rowless(task.rows)
        if self.shrink == "auto":
            models = own_fits(learner, task.rows, task.seed)
        elif isinstance(learner, Linear):
            strength = real("shrink", self.shrink, least=0)
            models = shrunk(learner, task.rows, strength=strength)
        else:
            raise InputError(f"shrink is for linear models. Got {learner!r}.")
        return at_once(task, models, stage=stage, keep=keep)
