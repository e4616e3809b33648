"""A run that looks after itself: halving, keeping, going on, and any site that makes fleets."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from persfl import Best, GradientStep, Linear, LoopFleet, Tree, Uniform
from persfl.errors import InputError
from persfl.sources import clustered_regression
from persfl.training import (
    InProcess,
    Plan,
    peers_of,
    resumable,
    rounds_for,
    step_of,
    train,
)


@pytest.fixture(scope="module")
def rows():
    return clustered_regression(n=10, clusters=2, rows=8, features=3, seed=0)


@pytest.fixture
def plan():
    return Plan(Linear(), GradientStep, 0.1, Uniform(4), Best(), rounds=12, seed=1)


class Notebook:
    """Keeps every state, and goes on from one of them."""

    def __init__(self, last=None):
        self.states, self.rounds, self._last = [], [], last

    def last(self, stage):
        return self._last

    def after(self, stage, plan, state, round_):
        if round_ is not None:
            self.states.append(state)
            self.rounds.append(plan.rounds)


def same(ours, theirs):
    np.testing.assert_array_equal(ours.models, theirs.models)
    np.testing.assert_array_equal(ours.losses, theirs.losses)
    assert ours.pace == theirs.pace


def test_a_run_goes_on_from_any_round_and_ends_the_same(rows, plan):
    keep = Notebook()
    whole = train(rows, plan, keep=keep)
    for state in keep.states[::4]:
        same(train(rows, plan, keep=Notebook(state)), whole)


def test_a_site_may_bring_fleets_of_its_own(rows, plan):
    """As a federation does: all that is asked of it is a fleet."""

    @dataclass(frozen=True)
    class Elsewhere:
        n: int
        features: int

        def fleet(self, proposer, start=None):
            return LoopFleet(
                rows, learner=Linear(), proposer=proposer, start=start, seed=1
            )

    there = train(Elsewhere(10, 3), plan)
    here = train(InProcess(rows, Linear(), seed=1), plan)
    np.testing.assert_allclose(there.models, here.models, rtol=1e-9)


def test_an_adopter_that_is_finished_ends_the_run(rows, plan):
    class Enough(Best):
        def finished(self, trust):
            return trust.table()["asked"].sum() >= 3 * 4 * 10

    keep = Notebook()
    state = train(rows, replace(plan, adopter=Enough()), keep=keep)
    assert state.r == 3
    assert keep.rounds == [12, 12, 3]  # whoever shows progress is told of the end


def test_steps_that_are_too_long_are_halved_and_then_twice_more(rows, plan):
    state = train(rows, replace(plan, step_size=40.0))
    assert state.pace.safe
    halved = np.array([*state.pace.halved, state.pace.step_size])
    np.testing.assert_allclose(halved[:-1] / halved[1:], 2.0)


def test_a_state_of_other_devices_is_refused(rows, plan):
    state = train(rows, plan)
    fewer = clustered_regression(n=9, clusters=2, rows=8, features=3, seed=0)
    with pytest.raises(InputError, match="is not of these 9 devices"):
        resumable(state, fewer, Linear())
    wider = clustered_regression(n=10, clusters=2, rows=8, features=4, seed=0)
    with pytest.raises(InputError):
        train(wider, plan, keep=Notebook(state))
    assert resumable(None, rows, Linear()) is None


def test_what_auto_stands_for():
    assert rounds_for("auto", Linear(), 400) == 400
    assert rounds_for("auto", Tree(), 400) == 20
    assert step_of("auto", Linear("logistic"), features=2) == 4.0
    assert peers_of("auto", 3) == Uniform(2)
    with pytest.raises(InputError, match=r"peers must be at most 2 \(3 devices\)"):
        peers_of(3, 3)
    with pytest.raises(InputError, match="rounds must be at least 1"):
        rounds_for(0, Linear())
