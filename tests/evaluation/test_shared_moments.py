"""Intervals over moments that devices share, and for rows to come."""

import numpy as np
import pandas as pd

from persfl.devices import Devices
from persfl.evaluation.headline import headline
from persfl.evaluation.intervals import gains_of, over_devices
from persfl.evaluation.row_order import RowOrder
from persfl.evaluation.shared_moments import PARTS, MomentSpread, shared_moments
from persfl.evaluation.trials import Trial, worth_of_trials
from persfl.evaluation.verdicts import Worth

DEVICES, MONTHS = 30, 6
ROWS = Devices.of(
    [(np.zeros((MONTHS, 1)), np.arange(MONTHS) + 0.0)] * DEVICES, quiet=True
)


def losses(random):
    """Of a window of months that are good or bad for all devices, for each arm in its own way."""
    found = {}
    for arm, level in (("own", 1.0), ("personal", 0.8)):
        month = 0.5 * random.normal(size=MONTHS)
        noise = random.exponential(size=(DEVICES, MONTHS))
        found[arm] = (level * np.exp(month) * noise).ravel()
    return found


def judged(found, *, ahead):
    """The worth of that window."""
    moments = RowOrder(ordered=True).moments(ROWS, np.ones(len(ROWS.y), dtype=bool))
    return worth_of_trials([Trial(ROWS, found, {}, moments)], 0, ahead=ahead)


def test_intervals_for_rows_to_come_hold_what_comes():
    """Over devices alone they hold far too seldom: all devices have the same months."""
    random = np.random.default_rng(0)
    inside = {"devices": 0, "to come": 0}
    for _ in range(80):
        worth = judged(losses(random), ahead=True)
        later = losses(random)
        true = gains_of(later["own"].mean(), later["personal"].mean())
        alone = over_devices(worth.error("own"), worth.error("personal"))
        inside["devices"] += alone.low <= true <= alone.high
        said = worth.fleet()
        inside["to come"] += said.low <= true <= said.high
    assert inside["devices"] < 0.7 * 80
    assert inside["to come"] >= 0.92 * 80


def test_an_interval_over_moments_holds_the_gain_of_all_moments():
    """Keys that are no time: what is meant is the gain over keys like these."""
    random = np.random.default_rng(1)
    level = np.exp(0.125)  # a month's mean
    true = gains_of(level, 0.8 * level)
    said = [judged(losses(random), ahead=False).fleet() for _ in range(80)]
    assert np.mean([each.low <= true <= each.high for each in said]) >= 0.92


def test_moments_that_change_nothing_widen_nothing():
    spread = MomentSpread(0.0, 8, ahead=False)
    np.testing.assert_allclose(spread.ends(-0.2, [-0.5, -1.0], 0.3)[0], [-0.5, -1.0])


def test_of_too_few_moments_they_count_as_devices_do():
    one = MomentSpread(0.0, 1, ahead=False).ends(0.0, -0.5, 0.5)
    np.testing.assert_allclose(one[1], 1 - 0.5 ** np.sqrt(2))


def test_many_moments_are_taken_in_parts_that_follow_each_other():
    moment = np.arange(96)
    rows = moment, np.zeros(96, dtype=int), np.ones(96)
    found = shared_moments(*rows, {"own": moment + 0.0}, ahead=True).errors["own"]
    assert len(found) == PARTS
    assert (np.diff(found) > 0).all()
    np.testing.assert_allclose(found.sum(), moment.mean())


def test_what_rows_share():
    judge = np.zeros(len(ROWS.y), dtype=bool)
    judge.reshape(DEVICES, MONTHS)[:, -2:] = True
    assert RowOrder().moments(ROWS, judge) is None
    places = RowOrder(ordered=True).moments(ROWS, judge)
    assert places.tolist() == [0, 1] * DEVICES
    keys = np.arange(len(ROWS.y)) % 4
    np.testing.assert_array_equal(
        RowOrder(blocks=keys).moments(ROWS, judge), keys[judge]
    )


def test_sentences_say_what_an_interval_is_for():
    worth = judged(losses(np.random.default_rng(2)), ahead=True)
    told = headline(worth).found
    assert "95 % interval for as many rows to come: " in told
    assert f"on the latest {DEVICES * MONTHS} rows of {DEVICES} devices" in told
    table = pd.DataFrame({"error_own": [1.0, 2.0], "error_personal": [0.5, 1.2]})
    assert "to come" not in headline(Worth(table.assign(held=3), 1.0, 0)).found
