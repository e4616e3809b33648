"""Which engine computes for a fleet: decided here, once, and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass

from persfl.errors import InputError
from persfl.fleets.batched import Batched
from persfl.fleets.compiled_engine import Compiled, pair_kernel
from persfl.fleets.engine import Engine, Task
from persfl.fleets.pairwise import Pairwise
from persfl.fleets.torch_engine import torch_engine
from persfl.traits import has_gradients, has_tensors


@dataclass(frozen=True)
class Wishes:
    """What somebody asked an `ArrayFleet` to compute with."""

    compute: str | None = None
    dtype: str | None = None
    compiled: bool = False
    n_jobs: int | None = 1

    @property
    def torch(self) -> bool:
        """Whether tensors were asked for."""
        return bool(self.compute or self.dtype or self.compiled)


def engine_for(task: Task, wishes: Wishes) -> Engine:
    """Pair by pair where models are no vectors; else tensors, compiled code or arrays.

    Tensors where they were asked for or the learner is made of them; compiled code where there is
    some.
    """
    learner = task.learner
    if isinstance(learner, (list, tuple)) or not has_gradients(learner):
        if wishes.compute not in (None, "cpu"):
            raise InputError(
                f"compute={wishes.compute!r} needs steps of Linear or Network. Got {learner!r}:"
                " leave it out."
            )
        return Pairwise(task, wishes.n_jobs)
    if wishes.torch or has_tensors(learner):
        found = torch_engine(
            task,
            compute=wishes.compute or "cpu",
            dtype=wishes.dtype,
            compiled=wishes.compiled,
        )
        if found is not None:
            return found
    steps = pair_kernel(learner, task.proposer)
    return Batched(task) if steps is None else Compiled(task, steps)
