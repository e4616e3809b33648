"""The compiled engine: gradient steps of Linear over all pairs, on rows where they lie."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import effective_n_jobs

from persfl.checks import stranger
from persfl.compiled import kernels
from persfl.fleets.batched import Batched
from persfl.fleets.refusals import refuse_no_jobs
from persfl.learners.linear import Linear
from persfl.learners.losses import LOSSES
from persfl.proposers.gradient import GradientStep
from persfl.types import Answers, AnyArray, Array, IntArray, Learner, Proposer

if TYPE_CHECKING:
    from persfl.devices import Devices
    from persfl.fleets.engine import EngineTask, Slice

FEW = 64  # targets that are not worth a thread


@dataclass(frozen=True)
class LinearSteps:
    """Gradient steps of a linear learner over pairs, in compiled code that reads each device's
    rows where they lie, by so many threads.
    """

    settings: tuple[int, float, float, float, int]
    threads: int = 1

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
        theirs, mine = _rows(peers.rows), _rows(own.rows)

        def run(*arrays: AnyArray) -> int:
            """These targets: what becomes of one does not depend on others."""
            asked, which, probes, *found = arrays
            return int(
                code.linear_pairs(
                    *theirs, asked, *mine, which, probes, *self.settings, *found
                )
            )

        by_target = (at, own.which, models, losses, lengths, out)
        stray = max(_by_threads(run, by_target, self.threads))
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


def _by_threads(
    run: Callable[..., int], by_target: tuple[AnyArray, ...], threads: int
) -> list[int]:
    """What becomes of all targets, of which each array has a row or which is empty: several parts
    of them at a time, where there are many.
    """
    count = len(by_target[0])
    parts = max(1, min(threads, count // FEW))
    if parts == 1:  # a round of one target takes no longer than a few calls of NumPy
        return [run(*by_target)]
    edges = np.linspace(0, count, parts + 1).astype(np.int64).tolist()
    pieces = [
        [each[first:last] if len(each) else each for each in by_target]
        for first, last in pairwise(edges)
    ]
    with ThreadPoolExecutor(parts) as pool:
        return list(pool.map(lambda piece: run(*piece), pieces))


def pair_kernel(
    learner: Learner, proposer: Proposer, n_jobs: int | None = 1
) -> LinearSteps | None:
    """The compiled kernel for these parts, or None where there is none (or no numba)."""
    # a subclass may do something else
    if type(learner) is not Linear or learner.kind not in LOSSES:
        return None
    if type(proposer) is not GradientStep or proposer.batch is not None:
        return None
    if kernels() is None:
        return None
    refuse_no_jobs(n_jobs)
    return LinearSteps(
        (
            LOSSES[learner.kind].code,
            learner.delta,
            learner.l2,
            float(proposer.step_size),
            int(proposer.steps),
        ),
        1 if n_jobs == 1 else effective_n_jobs(n_jobs),
    )


def _rows(devices: Devices) -> tuple[AnyArray, ...]:
    return devices.X, devices.y, devices.weight, devices.start, devices.total
