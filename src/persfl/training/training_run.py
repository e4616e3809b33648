"""A run of the loop that looks after itself: it halves a step size that diverges, and can be kept
and resumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from persfl.device_checks import refuse_rowless
from persfl.devices import Devices
from persfl.errors import Diverged
from persfl.loop import personalize
from persfl.training.state import Forget, Keep, Pace, Plan, State, checked_state
from persfl.traits import can_keep, has_gradients, keeps_steps
from persfl.trust import Trust

if TYPE_CHECKING:
    from persfl.fleets.array_fleet import ArrayFleet
    from persfl.types import Array, Fleet, Learner, Model, Proposer

# a median loss this many times its start means the steps are too long, though nothing overflows
GROWTH = 10.0
# so does a loss this many times its start on more than this share of the devices
RUNAWAY = 100.0
FEW = 0.02
# after so many halvings of which none helped, it is not the steps: peers are unlike
GIVE_UP = 10
HALVINGS = 30


class Site(Protocol):
    """Where a run takes place: whoever can say how many devices there are, and make a fleet."""

    @property
    def n(self) -> int: ...
    @property
    def features(self) -> int: ...
    def fleet(
        self, proposer: Proposer, start: Sequence[Model] | None = None
    ) -> Fleet: ...


@dataclass(frozen=True, eq=False)
class InProcess:
    """The site whose rows are in this process."""

    rows: Devices
    learner: Learner
    seed: int = 0
    n_jobs: int | None = 1
    compute: str | None = None

    @property
    def n(self) -> int:
        """How many devices there are."""
        return len(self.rows)

    @property
    def features(self) -> int:
        """How many columns rows have."""
        return self.rows.features

    def fleet(
        self, proposer: Proposer, start: Sequence[Model] | None = None
    ) -> ArrayFleet:
        """A new fleet of all devices, beginning with these models."""
        from persfl.fleets.array_fleet import ArrayFleet  # engines take long to load

        refuse_rowless(self.rows)
        return ArrayFleet(
            self.rows,
            learner=self.learner,
            proposer=proposer,
            start=start,
            seed=self.seed,
            n_jobs=self.n_jobs,
            compute=self.compute,
        )


@runtime_checkable
class Finishing(Protocol):
    """An adopter that knows when further rounds would change nothing."""

    def finished(self, trust: Trust) -> bool: ...


def train(
    where: Devices | Site,
    plan: Plan,
    *,
    stage: str = "final",
    keep: Keep | None = None,
    start: State | None = None,
) -> State:
    """Run the plan to its last round; a step size that diverges is halved and the run starts anew.

    A step that just about does not diverge is a poor one, so one that had to be halved is halved
    twice more.

    >>> from persfl import Best, GradientStep, Linear, Uniform
    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(n=30, clusters=2, rows=10, features=5, seed=0)
    >>> plan = Plan(Linear(), GradientStep, 40.0, Uniform(5), Best(), rounds=50, seed=0)
    >>> state = train(devices, plan)
    >>> state.r, state.pace.step_size < 40, len(state.pace.halved) > 0
    (50, True, True)
    """
    site: Site = (
        InProcess(where, plan.learner, plan.seed, plan.n_jobs, plan.compute)
        if isinstance(where, Devices)
        else where
    )
    keep = keep or Forget()
    state = start or checked_state(
        keep.last(stage), plan.learner, site.n, site.features
    )
    pace = Pace(plan.step_size) if state is None else state.pace
    while True:
        run = _Run(site, plan, stage, keep, pace, resumed=start is None)
        try:
            done = run.rounds(state)
            if not pace.halved or pace.safe:
                return done
            pace = _shorter(pace, by=4, safe=True)
        except Diverged as trouble:
            if len(pace.halved) > HALVINGS or not has_gradients(plan.learner):
                raise
            pace = _shorter(pace, by=2)
            if isinstance(trouble, _Grew) and len(pace.halved) >= GIVE_UP:
                pace = Pace(plan.step_size, unlike=True)
        # online, the models before this call are good; otherwise begin anew
        state = start


def _shorter(pace: Pace, *, by: int, safe: bool = False) -> Pace:
    """A half or a quarter of the step; every halving on the way is noted."""
    step = pace.step_size
    halved = (step,) if by == 2 else (step, step / 2)
    return replace(
        pace,
        step_size=step / by,
        halved=(*pace.halved, *halved),
        safe=safe or pace.safe,
    )


@dataclass(frozen=True, eq=False)
class _Run:
    """One attempt, with one step size."""

    site: Site
    plan: Plan
    stage: str
    keep: Keep
    pace: Pace
    resumed: bool  # what a state says of the first round is the level that losses may grow from

    def rounds(self, state: State | None) -> State:
        """From this state, or the beginning, to the last round."""
        plan = self.plan
        fleet = self.site.fleet(
            plan.proposer(self.pace.step_size), None if state is None else state.models
        )
        trust = Trust.blank(fleet) if state is None else state.trust
        if state is not None and _finished(plan.adopter, trust):
            return state
        state = self._begun(fleet, state, trust)
        if not state.losses:
            self.keep.after(self.stage, plan, state, None)
        losses = list(state.losses)
        # online, the rows of this call set the level
        begin = losses[0] if losses and self.resumed else None
        for round_ in personalize(
            fleet,
            sampler=plan.sampler,
            adopter=plan.adopter,
            rounds=plan.rounds,
            seed=plan.seed,
            trust=trust,
            first=state.r,
        ):
            own = round_.loss.copy()
            begin = own if begin is None else begin
            self._refuse_growth(round_.r, own, begin)
            losses.append(own)
            kept = fleet.kept if can_keep(fleet) else None
            state = State(
                round_.r + 1, fleet.models, round_.trust, self.pace, tuple(losses), kept
            )
            ended = _finished(plan.adopter, round_.trust)
            so_far = replace(plan, rounds=state.r) if ended else plan
            self.keep.after(self.stage, so_far, state, round_)
            if ended:
                break
        return state

    def _begun(self, fleet: Fleet, state: State | None, trust: Trust) -> State:
        """The state before the next round."""
        if state is None:
            return State(0, fleet.models, trust, self.pace)
        if state.kept is not None and can_keep(fleet):
            fleet.kept = state.kept
        return replace(state, models=fleet.models, pace=self.pace)

    def _refuse_growth(self, r: int, own: Array, begin: Array) -> None:
        """Stop where steps are too long, though nothing overflows.

        Refitted models start at their own fit, whose loss may be 0; only descent can run away. A
        search for kin that leads far away is ended by the rule itself.
        """
        plan = self.plan
        pace = self.pace
        watched = has_gradients(plan.learner) and not pace.unlike
        if watched and not keeps_steps(plan.adopter) and _too_long(own, begin):
            advice = plan.proposer(pace.step_size).advice()
            grew = f"round {r}: losses grow instead of falling; {advice}."
            raise _Grew(grew, round=r, device=None)


def _finished(adopter: object, trust: Trust) -> bool:
    return isinstance(adopter, Finishing) and adopter.finished(trust)


class _Grew(Diverged):
    """Losses grew, though nothing overflowed."""


def _too_long(own: Array, begin: Array) -> bool:
    """Whether steps are too long, by what they made of the losses so far."""
    grown = np.median(own - begin) > (GROWTH - 1) * np.median(np.abs(begin)) + 1e-9
    return bool(grown or runaways(own, begin).mean() > FEW)


def runaways(own: Array, begin: Array) -> Any:
    """(targets,) whose loss has grown many times over, beyond what is usual in the fleet."""
    usual = np.maximum(np.abs(begin), np.median(np.abs(begin)))
    return own - begin > (RUNAWAY - 1) * usual + 1e-9
