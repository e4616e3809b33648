"""Fine-tuning: one model for everybody, fitted where all rows are, which every device then refits
to its own. A yardstick, as pooling is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from persfl.device_checks import refuse_rowless
from persfl.evaluation.rivals import pooled_fit, tuned_fits
from persfl.methods.method_fields import MethodSettings, setting
from persfl.methods.protocol import Needs, Task
from persfl.methods.single_fit import at_once
from persfl.proposers.gradient import GradientStep
from persfl.training.state import Keep, State, rounds_for, step_of
from persfl.traits import has_gradients


@dataclass(frozen=True)
class FineTuned(MethodSettings):
    """The pooled model, refitted to every device's own rows."""

    name: ClassVar[str] = "fine-tuned"
    about: ClassVar[str] = "One model of all rows in one place, refitted to own rows"
    source: ClassVar[str] = "fine-tuning, Wang et al. 2019"

    rounds: int | str = setting("auto", "own steps of models that take steps")
    step_size: float | str = setting("auto", "how long those steps are")

    def needs(self) -> Needs:
        return Needs(together=True, leaves="All of its rows.")

    def run(
        self, task: Task, *, stage: str = "final", keep: Keep | None = None
    ) -> State:
        learner = task.learner
        refuse_rowless(task.rows)
        steps = None
        if has_gradients(learner):
            step = step_of(self.step_size, learner, task.features)
            steps = GradientStep(step, steps=rounds_for(self.rounds, learner))
        pooled = pooled_fit(learner, task.rows, task.seed)
        models = tuned_fits(learner, task.rows, pooled, task.public, steps, task.seed)
        return at_once(task, models, stage=stage, keep=keep)
