"""Rounds that stay on the chip: the same devices are drawn and chosen as on this side."""

from __future__ import annotations

import numpy as np
import pytest

from persfl import (
    ArrayFleet,
    Best,
    BestOrStay,
    GradientStep,
    Linear,
    TopK,
    Uniform,
    personalize,
)
from persfl.sources import clustered_regression
from persfl.trust import Trust

torch = pytest.importorskip("torch")
from persfl.fleets.chip_rounds import ChipRounds


def fleet_of(targets=None, **more):
    devices = clustered_regression(n=30, clusters=2, rows=6, features=3, seed=1)
    step = GradientStep(0.1)
    return ArrayFleet(
        devices, learner=Linear(), proposer=step, targets=targets, compute="cpu", **more
    )


@pytest.mark.parametrize("adopter", [Best(), BestOrStay(), TopK(3), TopK(50)])
@pytest.mark.parametrize("targets", [None, [3, 17]])
def test_whole_rounds_are_the_rounds_of_the_loop(adopter, targets):
    fleet = fleet_of(targets)
    usual = list(
        personalize(fleet, sampler=Uniform(7), adopter=adopter, rounds=6, seed=5)
    )
    other = fleet_of(targets)
    rounds = ChipRounds(other.engine, 7, adopter, 5)
    for expected in usual:
        peers, answers, choice = rounds(expected.r)
        assert peers.tolist() == expected.peers.tolist()
        np.testing.assert_array_equal(answers.losses, expected.losses)
        np.testing.assert_array_equal(answers.lengths, expected.lengths)
        for mine, theirs in zip(choice[:3], expected.choice[:3], strict=True):
            np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(other.models, fleet.models)


def test_peers_are_drawn_by_all_bits_of_the_seed():
    fleet = fleet_of()
    for seed in (0, 2**62, 2**64 - 1):
        rounds = ChipRounds(fleet.engine, 29, Best(), seed)
        expected = Uniform(29)(Trust.blank(fleet), 3, seed)
        assert rounds(3)[0].tolist() == expected.tolist()


def test_nobody_adopts_an_answer_that_is_no_number():
    fleet = fleet_of()
    before = np.full_like(fleet.models, 1e200)
    fleet.models = before
    rounds = ChipRounds(fleet.engine, 5, Best(), 0)
    _, answers, choice = rounds(0)
    assert np.isinf(answers.losses[:, 1:]).all()
    assert (choice.peers == -1).all()
    assert (choice.stay == 1.0).all()
    rounds.undo()
    np.testing.assert_array_equal(fleet.models, before)


def test_where_memory_runs_out_rounds_are_taken_step_by_step(monkeypatch):
    fleet = fleet_of()
    rounds = ChipRounds(fleet.engine, 5, Best(), 0)

    def full(key):
        raise torch.cuda.OutOfMemoryError("made up")

    monkeypatch.setattr(rounds, "_round", full)
    assert rounds(0) is None
    monkeypatch.undo()
    assert rounds(1) is None


def test_a_processor_takes_rounds_step_by_step():
    assert fleet_of().staying(Uniform(5), Best(), 0) is None


def models_after(rounds, adopter=Best()):
    """Models and records of a usual run."""
    fleet = fleet_of()
    run = personalize(fleet, sampler=Uniform(7), adopter=adopter, rounds=rounds, seed=5)
    return [fleet.models for _ in run]


def test_a_round_that_has_begun_ahead_is_not_seen():
    usual = models_after(4)
    fleet = fleet_of()
    rounds = ChipRounds(fleet.engine, 7, Best(), 5)
    for r in range(4):
        rounds(r, more=True)
        if r != 1:  # looking changes nothing, nor does not looking
            np.testing.assert_array_equal(fleet.models, usual[r])


def test_models_that_are_set_meanwhile_are_those_of_the_next_round():
    usual = models_after(3)
    fleet = fleet_of()
    rounds = ChipRounds(fleet.engine, 7, Best(), 5)
    start = fleet.models
    rounds(0, more=True)
    fleet.models = start
    for r in range(3):
        rounds(r, more=r < 2)
    np.testing.assert_array_equal(fleet.models, usual[2])


def test_the_last_round_is_undone_though_the_next_has_begun():
    usual = models_after(2)
    for more in (False, True):
        fleet = fleet_of()
        rounds = ChipRounds(fleet.engine, 7, Best(), 5)
        rounds(0, more=True)
        rounds(1, more=more)
        rounds.undo()
        np.testing.assert_array_equal(fleet.models, usual[0])
        rounds(1)
        np.testing.assert_array_equal(fleet.models, usual[1])


def test_a_second_run_takes_back_its_own_rounds():
    fleet = fleet_of()
    first = ChipRounds(fleet.engine, 7, Best(), 5)
    first(0, more=True)
    start = fleet.models
    second = ChipRounds(fleet.engine, 7, Best(), 6)
    second(0, more=True)
    second.undo()
    np.testing.assert_array_equal(fleet.models, start)


def test_nothing_of_a_record_can_be_changed():
    peers, answers, choice = ChipRounds(fleet_of().engine, 7, Best(), 5)(0)
    for part in (peers, *answers, *choice[:3]):
        with pytest.raises(ValueError, match="read-only"):
            part[0] = 1
