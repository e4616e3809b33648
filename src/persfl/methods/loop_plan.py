"""What methods that ask peers round by round have in common: from settings to a plan."""

from __future__ import annotations

from functools import partial

from persfl.adopters.best import Best
from persfl.methods.protocol import Task
from persfl.proposers.gradient import GradientStep
from persfl.proposers.refit import Refit
from persfl.samplers.nobody import Nobody
from persfl.training.state import Plan, step_of
from persfl.traits import has_gradients, traits_of
from persfl.types import Adopter, Proposer, Sampler


def loop_plan(
    task: Task,
    rounds: int,
    *,
    step_size: float | str = "auto",
    sampler: Sampler | None = None,
    adopter: Adopter | None = None,
) -> Plan:
    """So many rounds on this task, with the proposer that its learner takes.

    Without a sampler nobody is asked: methods that do not go by rounds of the loop name themselves
    to a keeper by such a plan.
    """
    return Plan(
        task.learner,
        partial(proposer_for, task),
        step_of(step_size, task.learner, task.features),
        sampler or Nobody(),
        adopter or Best(),
        rounds,
        task.seed,
        task.n_jobs,
        task.compute,
    )


def proposer_for(task: Task, step_size: float) -> Proposer:
    """Gradient steps, or refits to public points for models that have no gradients."""
    if has_gradients(task.learner):
        return GradientStep(step_size)
    assert task.public is not None  # made for every learner without gradients
    soft = bool(task.classes) and traits_of(task.learner).loss == "log"
    return Refit(task.public, step_size=step_size, soft=soft)
