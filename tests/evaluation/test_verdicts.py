"""Verdicts: what is measured, what is said, and how often that is true."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_1samp

from persfl import Devices, Linear, PersonalizedRegressor
from persfl.errors import InputError
from persfl.evaluation.intervals import over_devices, verdict
from persfl.evaluation.rivals import own_fits
from persfl.evaluation.split import some_rows, split, split_masks
from persfl.evaluation.trials import (
    Smaller,
    Trial,
    run_trial,
    with_falls,
    worth_of_trials,
)
from persfl.evaluation.verdicts import HELPS, TOO_FEW, Worth
from persfl.methods import Paper
from persfl.sources import clustered_regression
from persfl.units import Units


@pytest.fixture
def devices():
    return clustered_regression(
        n=12, clusters=2, rows=10, features=4, noise=0.5, seed=0
    )


def test_errors_by_hand(devices):
    train, test = split(devices, 0.3, seed=0)
    units = Units.of(train, "shared", labels=True)
    learner = Linear(intercept=True)
    models = np.zeros((12, 5))
    worth = worth_of_trials(
        [run_trial(train, test, learner=learner, units=units, models=models)], 0
    )
    for i in (0, 7):
        expected = ((test[i].y - units.label_mean) ** 2).mean() / test.y.var()
        np.testing.assert_allclose(worth.error("personal")[i], expected)
    own = own_fits(learner, units.inside(train))
    inside = units.features(test[3].X, np.full(3, 3))
    away = units.outside(learner.predict(own[3], inside), np.full(3, 3)) - test[3].y
    np.testing.assert_allclose(worth.error("own")[3] * test.y.var(), (away**2).mean())
    gain = worth.device()["gain"][3]
    own_error, personal = worth.error("own")[3], worth.error("personal")[3]
    np.testing.assert_allclose(
        gain, (own_error - personal) / max(own_error, personal, worth.small)
    )


def test_the_interval_is_students():
    d = np.array([0.1, 0.3, -0.1, 0.4, 0.2])
    known = ttest_1samp(d, 0).confidence_interval(0.95)
    found = verdict(d)
    np.testing.assert_allclose(
        [found.low, found.high], [2 * x / (2 + x) for x in (known.low, known.high)]
    )
    np.testing.assert_allclose(found.gain, 2 * 0.18 / 2.18)
    assert verdict(np.array([])).says == "not measured"
    assert verdict(np.array([1.0])).says == "no clear difference"
    assert verdict(np.full(50, -2.0)).says == "hurts"


def test_the_fleets_interval_is_that_of_mean_errors():
    rng = np.random.default_rng(0)
    rival = rng.exponential(size=60)
    personal = rival * 0.7 + 0.02 * rng.normal(size=60)
    found = over_devices(rival, personal)
    np.testing.assert_allclose(found.gain, 1 - personal.mean() / rival.mean())
    assert found.low < found.gain < found.high
    assert found == over_devices(rival, personal)
    back = over_devices(personal, rival)
    np.testing.assert_allclose(back.gain, -found.gain)
    assert (back.says, found.says) == ("hurts", "helps")
    assert over_devices(rival[:0], rival[:0]).says == "not measured"
    assert over_devices(rival[:1], personal[:1]).says == "no clear difference"


def test_few_devices_with_errors_near_zero_decide_nothing():
    """A patient whose own model never errs, and a personalized one that errs by a hair."""
    rng = np.random.default_rng(0)
    own = rng.uniform(0.3, 0.5, size=50)
    personal = own * 0.9
    own[:10] = 1e-9
    personal[:10] = 1e-3
    found = over_devices(own, personal)
    assert found.says == "helps"
    assert -1 <= found.low <= found.gain <= found.high <= 1
    assert found.worse == 0.2


@pytest.mark.parametrize(
    ("few", "others", "says"),
    [
        (8.0, -0.05, "better on average, worse for most"),
        (-8.0, 0.05, "worse on average, better for most"),
        (0.0, -0.05, "hurts"),
        (0.0, 0.05, "helps"),
    ],
)
def test_where_mean_and_ranks_disagree_both_are_said(few, others, says):
    rng = np.random.default_rng(1)
    own = rng.uniform(0.9, 1.1, size=60)
    change = others + 0.01 * rng.normal(size=60)
    change[:15] = few + change[:15]
    assert (
        over_devices(own + np.maximum(change, 0), own - np.minimum(change, 0)).says
        == says
    )


def test_what_errors_fall_by_is_taken_off_and_widens():
    own, personal = np.full(30, 1.0), np.full(30, 0.8)
    found = over_devices(own, personal, (np.full(30, 0.1), np.zeros(30)))
    np.testing.assert_allclose([found.low, found.gain, found.high], [1 / 9, 1 / 9, 0.2])
    # more rows never raise an error, and never halve it
    silly = over_devices(own, personal, (np.full(30, 3.0), np.full(30, -3.0)))
    np.testing.assert_allclose(silly.gain, (0.5 - 0.8) / 0.8)


def test_a_smaller_trial_tells_the_fall():
    """Errors that are one over the rows learned from: those of all rows are foretold exactly."""
    rows = Devices.of(
        [(np.zeros((16, 1)), np.arange(16) + 0.0) for _ in range(5)], quiet=True
    )
    both = [split_masks(rows, 0.25, seed=0, half=half).judge for half in (False, True)]
    assert (both[0] | ~both[1]).all()
    trials = []
    for mask, learned in zip(both, (12, 14), strict=True):
        held = some_rows(rows, mask)
        assert held.counts.tolist() == [16 - learned] * 5
        losses = {arm: np.full(len(held.y), 1 / learned) for arm in ("own", "personal")}
        trials.append(Trial(held, losses, {}))
    worth = worth_of_trials(trials[:1], 0)
    held = trials[0].held.counts
    worth = with_falls(worth, rows, held, [Smaller(*trials, both[1][both[0]])])
    np.testing.assert_allclose(
        (worth.error("own") - worth.fall("own")) * worth.scale, 1 / 16
    )
    assert worth.fall("pooled") is None


def test_a_larger_trial_tells_the_fall():
    """Of a single row held back there is no half: one that holds back two tells the same."""
    rows = Devices.of(
        [(np.zeros((5, 1)), np.arange(5) + 0.0) for _ in range(6)], quiet=True
    )
    one, other = (split_masks(rows, 0.2, seed=0, part=part).judge for part in (0, 1))
    both = one | other
    trials = []
    for mask, learned in ((both, 3), (one, 4)):
        held = some_rows(rows, mask)
        losses = {arm: np.full(len(held.y), 1 / learned) for arm in ("own", "personal")}
        trials.append(Trial(held, losses, {}))
    worth = worth_of_trials(trials[1:], 0)
    held = trials[1].held.counts
    worth = with_falls(worth, rows, held, [Smaller(*trials, one[both])])
    np.testing.assert_allclose(
        (worth.error("own") - worth.fall("own")) * worth.scale, 1 / 5
    )


def _made_up(rng, n, rows, own, personal, between=0.0):
    """Losses of two arms on held-out rows: exponential, with devices' own true levels."""
    held = Devices.of(
        [(np.zeros((rows, 1)), rng.normal(size=rows)) for _ in range(n)], quiet=True
    )
    level = np.exp(between * rng.normal(size=n))
    noise = rng.exponential(size=(n, rows))
    losses = {
        arm: (noise * own).ravel() for arm in ("own", "pooled", "centred", "tuned")
    }
    losses["personal"] = (
        rng.exponential(size=(n, rows)) * personal * level[:, None]
    ).ravel()
    return worth_of_trials([Trial(held, losses, {})], 0), level * personal


def _claims(fleets, n, rows, personal):
    """What is said of many made-up fleets, and to each of their devices."""
    rng = np.random.default_rng(0)
    found = [_made_up(rng, n, rows, 1.0, personal)[0] for _ in range(fleets)]
    return [worth.fleet().says for worth in found], [
        said for worth in found for said in worth.device()["verdict"]
    ]


def test_where_nothing_changes_little_is_claimed():
    """The fleet's verdict is wrong in about one of twenty fleets, a device's in about one of
    forty.
    """
    said, here = _claims(60, 20, 6, 1.0)
    assert said.count("no clear difference") >= 53
    assert all(
        text == HELPS or text.startswith(f"{TOO_FEW}; 19 similar devices ")
        for text in here
    )
    assert here.count(HELPS) <= 0.01 * len(here)


def test_a_fleet_sees_what_its_devices_cannot():
    said, here = _claims(20, 60, 4, 0.6)
    assert said.count("helps") >= 18
    assert here.count(HELPS) < 0.3 * len(here)


def test_falling_back_by_the_fleets_evidence_beats_own_evidence():
    rng = np.random.default_rng(0)
    by_fleet, by_own = [], []
    for _ in range(50):
        worth, true = _made_up(rng, 40, 3, 1.0, 0.7, between=0.3)
        alone = worth.better_alone()
        by_fleet.append(np.where(alone, 1.0, true).mean())
        by_own.append(
            np.where(worth.error("own") < worth.error("personal"), 1.0, true).mean()
        )
    assert np.mean(by_fleet) < np.mean(by_own) - 0.02
    worse, _ = _made_up(rng, 40, 3, 1.0, 1.5)
    assert worse.better_alone().mean() > 0.9


def test_groups_and_devices_that_held_nothing_back(devices):
    rows = [
        (devices[i].X[: 3 if i == 5 else 10], devices[i].y[: 3 if i == 5 else 10])
        for i in range(12)
    ]
    train, test = split(
        Devices.of(rows, ids=[f"d{i}" for i in range(12)], quiet=True), 0.3, seed=0
    )
    units = Units.of(train, "shared", labels=True)
    worth = worth_of_trials(
        [
            run_trial(
                train,
                test,
                learner=Linear(intercept=True),
                units=units,
                models=np.zeros((12, 5)),
            )
        ],
        0,
    )
    assert worth.fleet().devices == 11
    assert worth.device()["verdict"][5].startswith(
        f"{TOO_FEW}; 11 similar devices lost "
    )
    assert np.isnan(worth.device()["gain"][5])
    found = worth.groups({f"d{i}": "even" if i % 2 == 0 else "odd" for i in range(12)})
    assert found.set_index("group")["devices"].to_dict() == {"even": 6, "odd": 5}
    with pytest.raises(InputError, match="each of the 12 devices"):
        worth.groups(["a"] * 3)
    with pytest.raises(InputError, match="arm"):
        worth.error("best")


def _fleet(held, gain):
    """Devices that hold back so many rows, with equal losses of 1 and, personalized, of 1 -
    gain.
    """
    rows = Devices.of(
        [(np.zeros((n, 1)), np.arange(n) + 0.0) for n in held], quiet=True
    )
    losses = {
        arm: np.ones(len(rows.y)) for arm in ("own", "pooled", "centred", "tuned")
    }
    return worth_of_trials(
        [Trial(rows, losses | {"personal": 1.0 - np.repeat(gain, held)}, {})], 0
    )


def test_similar_devices_have_about_as_many_rows():
    held = np.array([4] * 10 + [40] * 10)
    gain = np.r_[np.linspace(0.4, 0.6, 10), np.linspace(-0.2, 0.0, 10)]
    found = _fleet(held, gain).similar()
    assert found["devices"].tolist() == [9] * 20
    others = np.delete(gain[:10], 3)
    known = ttest_1samp(others, 0).confidence_interval(0.95)
    np.testing.assert_allclose(
        found.loc[3, ["gain", "low", "high"]].to_numpy(float),
        [others.mean(), known.low, known.high],
    )
    assert (found["gain"][:10] > 0.4).all()
    assert (found["gain"][10:] < 0).all()
    equal = _fleet(np.full(20, 6), gain).similar()
    assert equal["devices"].tolist() == [19] * 20
    few = _fleet(np.array([4, 9, 6, 7, 5, 8, 10, 11]), np.linspace(0.1, 0.5, 8))
    assert few.similar()["devices"].tolist() == [0] * 8
    assert set(few.device()["verdict"]) <= {HELPS, TOO_FEW}
    many = _fleet(np.arange(4, 84), np.linspace(0.6, 0.1, 80)).similar()
    assert many["devices"].between(20, 24).all()
    assert many["gain"][[0, 20, 40, 60, 79]].is_monotonic_decreasing


def test_a_device_is_never_told_that_it_loses():
    """Rows that all speak against asking, on every device: the fleet may hear of it, a device
    hears of similar ones.
    """
    worse = _fleet(np.full(12, 8), np.linspace(-0.5, -0.4, 12))
    assert worse.fleet().says == "hurts"
    told = worse.device()["verdict"]
    assert told[0] == f"{TOO_FEW}; 11 similar devices lost 31 % (gain −32 % to −30 %)"  # noqa: RUF001
    assert not told.str.contains("hurt").any()
    one = _fleet(np.full(12, 8), np.r_[0.5, np.linspace(-0.5, -0.4, 11)])
    # its own rows say so, and everybody like it loses
    assert one.device()["verdict"][0] != HELPS
    gains = _fleet(np.full(12, 8), np.linspace(0.4, 0.5, 12)).device()
    assert gains["verdict"].tolist() == [HELPS] * 12
    assert gains["similar_devices"].tolist() == [11] * 12


def test_one_heavy_row_is_one_row():
    """A device whose evidence hangs on one row must not be told that peers help, whatever the
    number of its rows.
    """
    rng = np.random.default_rng(0)
    weight = np.ones(10)
    weight[0] = 1000.0
    held = Devices.of(
        [(np.zeros((10, 1)), rng.normal(size=10), weight) for _ in range(200)],
        quiet=True,
    )
    losses = {
        arm: rng.exponential(size=2000)
        for arm in ("own", "pooled", "centred", "tuned", "personal")
    }
    said = worth_of_trials([Trial(held, losses, {})], 0).device()["verdict"].tolist()
    assert said.count(HELPS) <= 10


@pytest.mark.filterwarnings("ignore:On the rows held back")
def test_a_centred_model_of_counts_predicts_counts():
    draw = np.random.default_rng(0)
    who = np.repeat(np.arange(12), 8)
    X = draw.normal(size=(96, 2))
    y = draw.poisson(np.exp(1.0 + 0.2 * who + 0.3 * X[:, 0]))
    model = PersonalizedRegressor(
        Linear("poisson", intercept=True), method=Paper(rounds=2), random_state=0
    )
    with np.errstate(over="raise", invalid="raise"):
        model.fit(X, y, devices=who)
    centred = model.worth_.error("centred")
    assert centred.mean() < 3 * model.worth_.error("base").mean()


def test_of_many_devices_few_are_told_by_luck_that_it_helps_here():
    """Two rows a device, and half of all devices gain: the fleet's mean says nothing of one."""
    random = np.random.default_rng(0)
    n = 700
    table = pd.DataFrame({"device": np.arange(n), "held": 2, "evidence": 2.0})
    # single rows, so heavy tails: some intervals of two rows lie above 0 by luck
    rows = 0.2 + random.standard_t(3, size=(n, 2))
    table["error_own"] = 5 + rows.mean(axis=1)
    table["error_personal"] = 5.0
    table["spread"] = rows.std(axis=1, ddof=1)
    said = Worth(table, 1.0, 0).device()
    assert (said["low"] > 0).sum() > 10
    assert said["similar_low"].min() > 0
    assert (said["verdict"] == HELPS).sum() == 0
