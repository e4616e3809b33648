"""Which engine computes for a fleet: decided here, once, and nowhere else."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from persfl.checks import one_of, real
from persfl.errors import InputError, PersflWarning
from persfl.fleets.batched import Batched
from persfl.fleets.compiled_engine import Compiled, pair_kernel
from persfl.fleets.pairwise import Pairwise
from persfl.learners.linear import Linear
from persfl.learners.network import Network
from persfl.proposers.gradient import GradientStep
from persfl.proposers.refit import Refit
from persfl.traits import TensorLearner, has_gradients, has_tensors

if TYPE_CHECKING:
    from persfl.fleets.engine import Engine, EngineTask
    from persfl.types import Learner

# of products on a GPU; see `persfl.learners.precision`
PRECISIONS = ("float32", "tf32", "bf16")


@dataclass(frozen=True)
class Wishes:
    """What somebody asked an `ArrayFleet` to compute with."""

    compute: str | None = None
    dtype: str | None = None
    compiled: bool = False
    precision: str = "float32"
    memory: float | None = None
    n_jobs: int | None = 1

    def __post_init__(self) -> None:
        one_of("precision", self.precision, PRECISIONS)
        if self.precision != "float32" and not (self.compute or "").startswith("cuda"):
            raise InputError(
                f"precision={self.precision!r} is for a GPU: compute='cuda'. Got"
                f" compute={self.compute!r}."
            )
        if self.precision != "float32" and self.dtype == "float64":
            raise InputError(
                f"precision={self.precision!r} rounds float32. Got dtype='float64'."
            )
        if self.memory is not None:
            real("memory", self.memory, above=0)

    @property
    def of_networks(self) -> bool:
        """Whether there is one that only networks have."""
        return self.precision != "float32" or self.memory is not None

    @property
    def torch(self) -> bool:
        """Whether tensors were asked for."""
        return bool(self.compute or self.dtype or self.compiled)


def engine_for(task: EngineTask, wishes: Wishes) -> Engine:
    """Pair by pair where models are no vectors; else tensors, compiled code or arrays.

    Tensors where they were asked for or the learner is made of them; compiled code where there is
    some.
    """
    learner = task.learner
    if isinstance(learner, Sequence) or not has_gradients(learner):
        if wishes.compute not in (None, "cpu"):
            raise InputError(
                f"compute={wishes.compute!r} needs steps of Linear or Network. Got {learner!r}:"
                " leave it out."
            )
        return Pairwise(task, wishes.n_jobs)
    if wishes.torch or has_tensors(learner):
        found = _tensors(task, learner, wishes)
        if found is not None:
            return found
    steps = pair_kernel(learner, task.proposer, wishes.n_jobs)
    return Batched(task) if steps is None else Compiled(task, steps)


def _tensors(task: EngineTask, learner: Learner, wishes: Wishes) -> Engine | None:
    """The torch engine for these parts; None where there is none and none was asked for.

    Imported where it is made: torch is an extra. There must be rows: how many features a module
    has to take is known from them.
    """
    proposer = task.proposer
    compute = wishes.compute or "cpu"
    known = learner if has_tensors(learner) or type(learner) is Linear else None
    steps: GradientStep | Refit | None = None
    if type(proposer) is GradientStep or (
        type(proposer) is Refit and has_tensors(learner) and proposer.near(learner)
    ):
        steps = proposer
    if known is None or steps is None:
        if compute != "cpu":
            raise InputError(
                f"compute={compute!r} needs steps of Linear or Network. Got {learner!r} with"
                f" {proposer!r}."
            )
        return None
    trouble = ""
    if has_tensors(learner):
        trouble = _cannot_be_mapped(learner, int(task.rows.features or 0))
    if trouble:
        warnings.warn(
            "this module cannot be computed for many pairs at once, so they are asked one by one,"
            f" on this processor: {trouble}",
            PersflWarning,
            stacklevel=6,
        )
        return None
    from persfl.fleets.torch_engine import Torch

    # a network may say by itself how it is computed; what the fleet was told goes first
    precision, memory = wishes.precision, wishes.memory
    if isinstance(learner, Network) and not wishes.of_networks:
        precision, memory = learner.precision, learner.memory
    return Torch(
        task,
        known,
        steps,
        compute=compute,
        dtype=wishes.dtype,
        compiled=wishes.compiled,
        precision=precision,
        memory=memory,
    )


def _cannot_be_mapped(learner: TensorLearner, features: int) -> str:
    """Why `torch.func.vmap` does not take this module; empty if it does."""
    import torch
    from torch.func import vmap

    from persfl.fleets.torch_runtime import tensor_dtype
    from persfl.learners.network_module import cannot_map

    dtype = tensor_dtype(learner.dtype)
    w = torch.zeros((2, learner.size(features)), dtype=dtype)
    X = torch.zeros((2, 2, features), dtype=dtype)
    y = torch.zeros((2, 2), dtype=dtype)

    def loss(model: torch.Tensor, *rows: torch.Tensor) -> torch.Tensor:
        moving, fixed = learner.parts(model)
        return learner.part_loss(moving | fixed, *rows)

    try:
        # a module may be mapped with slopes and not without
        vmap(learner.slopes)(w, X, y, y + 1)
        vmap(loss)(w, X, y, y + 1)
    except RuntimeError as error:
        text = str(error).strip().splitlines()[0]
        if cannot_map(error):
            return text
        raise InputError(
            f"the module does not take rows of {features} features: {text}"
        ) from error
    return ""
