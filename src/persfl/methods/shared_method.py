"""Methods whose devices step from common models: settings, a step that is halved where losses grow,
and a run that can be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol, cast, runtime_checkable

import numpy as np

from persfl.adopters.best import Best
from persfl.errors import Diverged, InputError
from persfl.methods.method_fields import MethodSettings, setting
from persfl.methods.protocol import Needs, Task
from persfl.proposers.gradient import GradientStep
from persfl.samplers.nobody import Nobody
from persfl.training.state import (
    Forget,
    Keep,
    Pace,
    Plan,
    State,
    checked_state,
    rounds_for,
    step_of,
)
from persfl.training.training_run import HALVINGS
from persfl.trust import Trust
from persfl.types import Array, IntArray, Round

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet
    from persfl.seeds import Stream

# a mean loss that ends so many times above its first round's has run away somewhere
WORSE = 1.1


@runtime_checkable
class Stepping(Protocol):
    """A fleet whose devices can step from, and score, models that are not theirs."""

    def stepped(self, models: Array, who: IntArray | None, place: Stream) -> Array: ...
    def scored(self, models: Array, who: IntArray | None = None) -> Array: ...


@dataclass(frozen=True, kw_only=True)
class SteppedMethod(MethodSettings):
    """What such methods have in common; each says which rounds it takes over a fleet."""

    name: ClassVar[str]
    told: ClassVar[str] = ""
    leaves: ClassVar[str] = (
        "Where a step on its rows takes the common model, and how many rows it has. Over a"
        " federation also its losses."
    )

    rounds: int | str = setting("auto", "rounds of steps; auto: 100")
    step_size: float | str = setting("auto", "the first step; halved if losses grow")

    def rounds_over(
        self, fleet: InProcessFleet, rounds: int, seed: int
    ) -> Iterator[Round]:
        """The rounds; models stay in the fleet."""
        raise NotImplementedError

    def first_step(self, task: Task) -> float:
        """The step to begin with."""
        return step_of(self.step_size, task.learner, task.features)

    def steps_of(self, size: float) -> GradientStep:
        """What a device does with a model it is asked about, by the length of a step."""
        return GradientStep(size)

    def needs(self) -> Needs:
        return Needs(
            gradients=True,
            mixes=True,
            told=self.told,
            leaves=self.leaves,
        )

    def run(
        self, task: Task, *, stage: str = "final", keep: Keep | None = None
    ) -> State:
        """The state after the last round, with half the step as long as it makes losses grow, or
        with the first one where a run must not begin anew.

        A stage that was cut begins anew and ends the same, since nothing is drawn but by the seed.
        """
        keep = keep or Forget()
        rounds = rounds_for(self.rounds, task.learner)
        known = checked_state(keep.last(stage), task.learner, task.n, task.features)
        grew = have_grown if task.together else have_grown_for_several
        # it may have been cut after the last round of a step that was too long
        if known is not None and known.r == rounds and not _grew(known, grew):
            return known
        first = self.first_step(task)
        nobody, best = Nobody(), Best()  # nobody is asked in such rounds
        make = self.steps_of
        plan = Plan(task.learner, make, first, nobody, best, rounds, task.seed)
        pace = Pace(first)
        if task.once:
            return self._attempt(task, plan, pace, stage, keep)
        for _ in range(HALVINGS):
            try:
                state = self._attempt(task, plan, pace, stage, keep)
                if not _grew(state, grew):
                    return state
            except Diverged:
                pass
            step = pace.step_size
            pace = Pace(step / 2, halved=(*pace.halved, step))
        why = f"steps from {first:g} down to {pace.step_size:g} made losses grow."
        raise Diverged(why, round=0, device=None)

    def _attempt(
        self, task: Task, plan: Plan, pace: Pace, stage: str, keep: Keep
    ) -> State:
        """All rounds with one step size."""
        fleet = task.fleet(self.steps_of(pace.step_size))
        if not isinstance(fleet, Stepping):
            raise InputError(
                f"{self.name} needs devices that step from a common model."
            )
        state = State(0, fleet.models, Trust.blank(fleet), pace)
        keep.after(stage, plan, state, None)
        for round_ in self.rounds_over(
            cast("InProcessFleet", fleet), plan.rounds, plan.seed
        ):
            losses = (*state.losses, round_.loss)
            state = State(round_.r + 1, fleet.models, round_.trust, pace, losses)
            keep.after(stage, plan, state, round_)
        return replace(state, models=np.asarray(state.models).copy())


@dataclass(frozen=True, kw_only=True)
class SharedMethod(SteppedMethod):
    """Those in which a share of the devices take part in a round."""

    share: float = setting(0.2, "the share of the devices that take part in a round")


def _grew(state: State, grew: Callable[[Array, Array], bool]) -> bool:
    """Whether losses ended well above where they began, or are no numbers."""
    if not state.losses:  # of a folder that somebody else made
        return True
    return grew(state.losses[0], state.losses[-1])


def have_grown(first: Array, last: Array) -> bool:
    """Whether devices' losses are larger in the last round than in the first, on average."""
    return not last.mean() <= WORSE * first.mean()


def have_grown_for_several(first: Array, last: Array) -> bool:
    """The same where losses are what devices tell: one that alone decides does not count.

    >>> first = np.ones(4)
    >>> have_grown_for_several(first, np.array([0.5, 0.5, 0.5, 1e200]))
    False
    >>> have_grown_for_several(first, np.array([2.0, 2.0, 2.0, -1e200]))
    True
    """
    told = np.isfinite(first) & np.isfinite(last)
    first, last = first[told], last[told]
    if len(first) < 3:
        return len(first) > 0 and have_grown(first, last)
    each = range(len(first))
    without = [have_grown(np.delete(first, i), np.delete(last, i)) for i in each]
    if sum(without) in (1, len(without) - 1):
        return sum(without) == 1
    return have_grown(first, last)
