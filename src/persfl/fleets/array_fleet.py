"""The fast fleet: all pairs of a round at once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from persfl.errors import Diverged, InputError
from persfl.fleets.engine_choice import Wishes, engine_for
from persfl.fleets.in_process import InProcessFleet

if TYPE_CHECKING:
    from persfl.types import (
        Adopter,
        Answers,
        Choice,
        IntArray,
        Learner,
        Model,
        Models,
        Proposer,
        Sampler,
        WholeRound,
    )


class ArrayFleet(InProcessFleet):
    """Devices in this process whose models are rows of one array.

    Takes what `LoopFleet` takes and gives the same rounds. Learners whose models are not vectors
    (scikit-learn estimators, or one learner per target) are asked pair by pair.

    `compute`: where torch computes, such as "cuda" for a GPU; `dtype`: "float32" or "float64"
    there; `compiled`: with `torch.compile`. Networks take torch always, linear learners where one
    of the three asks for it. `precision` of products on a GPU: "float32" is exact, "tf32" rounds
    what goes into them to 10 binary digits, "bf16" computes networks with 8. `memory`: how many GiB
    the pairs that are computed at once may take.

    >>> from persfl import Best, GradientStep, Linear, Uniform, personalize
    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(n=50, clusters=2, rows=10, features=5, seed=0)
    >>> fleet = ArrayFleet(devices, learner=Linear(), proposer=GradientStep(0.05))
    >>> for round_ in personalize(
    ...     fleet, sampler=Uniform(10), adopter=Best(), rounds=200
    ... ):
    ...     pass
    >>> bool(((fleet.models - devices.true_weights) ** 2).sum(axis=1).max() < 1e-3)
    True
    """

    def __init__(
        self,
        devices: object,
        *,
        learner: Learner | Sequence[Learner],
        proposer: Proposer,
        targets: Sequence[Hashable] | None = None,
        seed: int = 0,
        start: str | Model | Models | None = None,
        holdout: float = 0.0,
        local: Proposer | None = None,
        n_jobs: int | None = 1,
        compute: str | None = None,
        dtype: str | None = None,
        compiled: bool = False,
        precision: str = "float32",
        memory: float | None = None,
        device: str | None = None,
    ) -> None:
        if device is not None:
            raise InputError(
                "a processor is named by compute, since a device is a participant. Write"
                f" compute={device!r}."
            )
        wishes = Wishes(compute, dtype, compiled, precision, memory, n_jobs)
        super().__init__(
            devices,
            learner=learner,
            proposer=proposer,
            targets=targets,
            seed=seed,
            start=start,
            holdout=holdout,
            local=local,
            engine=partial(engine_for, wishes=wishes),
        )

    def staying(
        self, sampler: Sampler, adopter: Adopter, seed: int
    ) -> WholeRound | None:
        """Rounds of these parts in one piece on a GPU, where the engine can: whom was asked, what
        came of it and what was adopted are all that comes back.
        """
        if type(self) is not ArrayFleet or self.home.source is not None:
            return None
        engine: object = self.engine
        if not isinstance(engine, StayingEngine):
            return None
        rounds = engine.staying(sampler, adopter, seed)
        if rounds is None:
            return None

        def whole(r: int, more: bool) -> tuple[IntArray, Answers, Choice] | None:
            self._r = r
            done = rounds(r, more)
            if done is None:
                return None
            peers, answers, choice = done
            try:
                judged = self.home.judge(answers, peers, r, engine.advice)
            except Diverged:
                rounds.undo()
                raise
            return peers, judged, choice

        return whole


@runtime_checkable
class StayingEngine(Protocol):
    """An engine whose chip takes whole rounds."""

    def staying(self, sampler: Sampler, adopter: Adopter, seed: int) -> Any:
        """Rounds of these parts; None where they need this side."""

    def advice(self) -> str:
        """What to change when every answer overflows."""
