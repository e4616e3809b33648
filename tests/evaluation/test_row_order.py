"""What is hidden together: whole keys at all devices, the future by a common clock."""

import numpy as np
import pytest

from persfl import Devices
from persfl.evaluation.row_order import RowOrder, held_rows, hidden_folds, row_parts
from persfl.evaluation.split import split, split_masks


def devices(counts):
    return Devices.of([(np.zeros((n, 1)), np.zeros(n)) for n in counts], quiet=True)


ROWS = devices([6, 9, 3])
DATES = np.concatenate([np.arange(6), np.arange(9), np.arange(3)])
TIME = DATES + 0.0


def test_a_key_is_hidden_at_all_devices_or_at_none():
    order = RowOrder(blocks=DATES)
    seen = np.zeros(len(DATES), dtype=int)
    for part in range(4):
        learn, judge = held_rows(ROWS, order, 0.25, seed=1, part=part)
        assert judge.any()
        assert not set(DATES[learn]) & set(DATES[judge])
        seen += judge
    assert seen.max() == 1
    assert len(np.unique(DATES[seen > 0])) >= 8
    other = held_rows(ROWS, order, 0.25, seed=2)
    assert not np.array_equal(held_rows(ROWS, order, 0.25, seed=1).judge, other.judge)


def test_keys_are_drawn_by_what_they_are_and_not_by_where_they_stand():
    order = RowOrder(blocks=DATES)
    back = np.arange(len(DATES))[::-1]
    turned = devices([3, 9, 6])
    first = held_rows(ROWS, order, 0.25, seed=1)
    second = held_rows(turned, order.at(back), 0.25, seed=1)
    np.testing.assert_array_equal(first.judge, second.judge[back])


def test_the_cut_is_at_one_moment_for_all():
    order = RowOrder(ordered=True, time=TIME)
    learn, judge = held_rows(ROWS, order, 0.25, seed=0)
    assert TIME[learn].max() < TIME[judge].min()
    # about a quarter; the third device ended before the cut, and so has nothing to judge
    assert 3 <= judge.sum() <= 6
    assert not judge[ROWS.owner == 2].any()
    assert not held_rows(ROWS, order, 0.25, seed=0, part=1).judge.any()


@pytest.mark.parametrize("seed", range(20))
def test_the_past_never_touches_the_future_with_any_gap_and_horizon(seed):
    draw = np.random.default_rng(seed)
    counts = draw.integers(1, 12, size=8)
    rows = devices(counts)
    time = np.concatenate([np.sort(draw.integers(0, 15, n)) for n in counts]) + 0.0
    gap, horizon = draw.integers(0, 4), draw.integers(1, 5)
    known = {"ordered": True, "time": time, "gap": float(gap)}
    order = RowOrder(**known, horizon=float(horizon))
    for learn, judge in hidden_folds(rows, order, 5, seed=seed):
        cut = time[judge].min()
        assert time[learn].max() < cut - gap + 1e-9 or not learn.any()
        assert time[judge].max() - cut < horizon
        # whoever judges has a past of its own
        assert set(rows.owner[judge]) <= set(rows.owner[learn])


def test_without_a_clock_time_goes_by_places_within_a_device():
    plain = RowOrder(ordered=True)
    learn, judge = split_masks(ROWS, 0.25, seed=0, order=plain)
    np.testing.assert_array_equal(
        split(ROWS, 0.25, seed=0, ordered=True)[1].counts, [2, 2, 0]
    )
    gap = RowOrder(ordered=True, gap=2.0, horizon=1.0)
    learn, judge = held_rows(ROWS, gap, 0.25, seed=0)
    place = np.arange(18) - ROWS.start[ROWS.owner]
    assert place[judge].tolist() == [4, 7]
    # the last device judges nothing, and so needs no gap
    assert np.bincount(ROWS.owner[learn]).tolist() == [2, 5, 3]


def test_keys_that_span_the_cut_are_not_learned_from():
    weeks = DATES // 4
    order = RowOrder(ordered=True, time=TIME, blocks=weeks)
    learn, judge = held_rows(ROWS, order, 0.25, seed=0)
    assert judge.any()
    assert learn.any()
    assert not set(weeks[learn]) & set(weeks[judge])


def test_one_key_or_one_moment_hides_nothing_by_itself():
    one = RowOrder(blocks=np.zeros(18, dtype=np.int64))
    assert not held_rows(ROWS, one, 0.25, seed=0).judge.any()
    assert hidden_folds(ROWS, one, 5, seed=0) == []


def test_parts_add_up_to_the_folds():
    order = RowOrder(ordered=True, time=TIME, gap=1.0, horizon=2.0)
    folds = hidden_folds(ROWS, order, 5, seed=0)
    part, roles = row_parts(folds)
    assert len(folds) > 1
    for fold, (learn, judge) in zip(folds, roles, strict=True):
        np.testing.assert_array_equal(np.isin(part, learn), fold.learn)
        np.testing.assert_array_equal(np.isin(part, judge), fold.judge)
