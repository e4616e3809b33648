"""The compiled engine: gradient steps of Linear over all pairs, on rows where they lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from persfl.checks import stranger
from persfl.compiled import kernels
from persfl.fleets.batched import Batched
from persfl.learners.linear import Linear
from persfl.learners.losses import LOSSES
from persfl.proposers.gradient import GradientStep
from persfl.types import Answers, AnyArray, Array, IntArray, Learner, Proposer

if TYPE_CHECKING:
    from persfl.devices import Devices
    from persfl.fleets.engine import EngineTask, Slice


@dataclass(frozen=True)
class LinearSteps:
    """Gradient steps of a linear learner over pairs, in compiled code that reads each device's
    rows where they lie.
    """

    settings: tuple[int, float, float, float, int]

    def answers(self, peers: Slice, own: Slice, models: Array) -> Answers:
        """Losses and step lengths of all pairs."""
        return self._run(peers, own, models, np.empty((0, 0, 0)))

    def proposals(self, peers: Slice, own: Slice, models: Array) -> Array:
        """(T, K, size) what these peers answer."""
        out = np.empty((*peers.which.shape, models.shape[1]))
        self._run(peers, own, models, out)
        return out

    def _run(self, peers: Slice, own: Slice, models: Array, out: Array) -> Answers:
        T, S = peers.which.shape
        losses = np.empty((T, S + 1))
        lengths = np.empty((T, S))
        at = np.ascontiguousarray(peers.which)
        code: Any = kernels()
        stray = code.linear_pairs(
            *_rows(peers.rows),
            at,
            *_rows(own.rows),
            own.which,
            models,
            *self.settings,
            losses,
            lengths,
            out,
        )
        if stray >= 0:
            raise stranger(stray, len(peers.rows))
        return Answers(losses, lengths)


class Compiled(Batched):
    """As `Batched`, with the pairs in compiled code."""

    def __init__(self, task: EngineTask, steps: LinearSteps) -> None:
        super().__init__(task)
        self.steps = steps

    def answers(self, peers: IntArray, asked: Slice, r: int) -> Answers:
        """Losses and lengths of all pairs."""
        return self.steps.answers(asked, self.rows.scoring, self.models)

    def _answered(self, peers: IntArray, asked: Slice, r: int) -> Array:
        return self.steps.proposals(asked, self.rows.scoring, self.models)


def pair_kernel(learner: Learner, proposer: Proposer) -> LinearSteps | None:
    """The compiled kernel for these parts, or None where there is none (or no numba)."""
    # a subclass may do something else
    if type(learner) is not Linear or learner.kind not in LOSSES:
        return None
    if type(proposer) is not GradientStep or proposer.batch is not None:
        return None
    if kernels() is None:
        return None
    return LinearSteps(
        (
            LOSSES[learner.kind].code,
            learner.delta,
            learner.l2,
            float(proposer.step_size),
            int(proposer.steps),
        )
    )


def _rows(devices: Devices) -> tuple[AnyArray, ...]:
    return devices.X, devices.y, devices.weight, devices.start, devices.total
