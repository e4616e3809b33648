"""DeviceKFold and LeaveDevicesOut: what a person types first gives numbers, or one sentence."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score

from persfl import DeviceKFold, LeaveDevicesOut, PersonalizedRegressor
from persfl.errors import InputError, UnseenWarning


@pytest.fixture
def rows():
    """Four devices with 7, 3, 2 and 1 rows, mixed up, on dates that they share."""
    luck = np.random.default_rng(0)
    who = np.repeat(["a", "b", "c", "d"], [7, 3, 2, 1])
    table = pd.DataFrame({"who": who, "x": luck.normal(size=13)})
    table["day"] = pd.to_datetime("2024-01-01") + pd.to_timedelta(
        table.groupby("who").cumcount(), unit="D"
    )
    table["y"] = 2 * table["x"] + luck.normal(size=13)
    return table.sample(frac=1.0, random_state=1).reset_index(drop=True)


def test_every_row_is_judged_once_and_every_device_stays_known(rows):
    seen = np.zeros(len(rows), dtype=int)
    for learn, judge in DeviceKFold(5, device="who").split(rows):
        assert set(learn).isdisjoint(judge)
        assert len(learn) + len(judge) == len(rows)
        assert set(rows["who"].iloc[learn]) >= {"a", "b", "c"}
        seen[judge] += 1
    assert (seen == 1).all()


def test_rows_of_a_device_are_dealt_evenly(rows):
    whose = np.asarray(rows["who"])
    many = [
        (whose[judge] == "a").sum()
        for _, judge in DeviceKFold(3).split(rows, groups=whose)
    ]
    assert sorted(many) == [2, 2, 3]


def test_classes_of_a_device_are_dealt_evenly():
    whose = np.repeat([0, 1], 12)
    y = np.tile([0, 0, 0, 1], 6)
    for _, judge in DeviceKFold(3).split(np.zeros((24, 1)), y, whose):
        for device in (0, 1):
            assert (y[judge][whose[judge] == device] == 1).sum() == 1


def test_the_same_seed_gives_the_same_folds_and_another_does_not(rows):
    def folds(seed):
        cut = DeviceKFold(3, device="who", random_state=seed)
        return [judge.tolist() for _, judge in cut.split(rows)]

    assert folds(0) == folds(0)
    assert folds(0) != folds(1)


def test_time_learns_the_past_of_all_devices(rows):
    found = list(DeviceKFold(2, device="who", time="day").split(rows))
    assert len(found) == 2
    for learn, judge in found:
        assert rows["day"].iloc[learn].max() < rows["day"].iloc[judge].min()


def test_ordered_rows_learn_each_devices_own_past(rows):
    for learn, judge in DeviceKFold(2, device="who", ordered=True).split(rows):
        for device in set(rows["who"].iloc[judge]):
            own = np.flatnonzero(rows["who"] == device)
            assert max(set(own) & set(learn)) < min(set(own) & set(judge))


def test_blocks_are_judged_whole(rows):
    for learn, judge in DeviceKFold(3, device="who", blocks="day").split(rows):
        assert set(rows["day"].iloc[learn]).isdisjoint(rows["day"].iloc[judge])


def test_left_out_devices_are_left_out_whole_and_once(rows):
    left = []
    for learn, judge in LeaveDevicesOut(2, device="who").split(rows):
        assert set(rows["who"].iloc[learn]).isdisjoint(rows["who"].iloc[judge])
        left += list(set(rows["who"].iloc[judge]))
    assert sorted(left) == ["a", "b", "c", "d"]


@pytest.mark.filterwarnings("ignore::persfl.PersflWarning")
def test_scikit_learn_takes_them(rows):
    X, y = rows[["who", "x"]], rows["y"]
    model = PersonalizedRegressor(device="who", method="own", holdout=0)
    folds = DeviceKFold(3, device="who")
    assert np.isfinite(cross_val_score(model, X, y, cv=folds)).all()
    assert np.isfinite(cross_val_predict(model, X, y, cv=folds)).all()
    search = GridSearchCV(model, {"units": ["shared", "raw"]}, cv=folds).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    with pytest.warns(UnseenWarning):
        new = cross_val_score(model, X, y, cv=LeaveDevicesOut(2, device="who"))
    assert np.isfinite(new).all()


@pytest.mark.parametrize(
    ("folds", "said"),
    [
        (DeviceKFold(3, device="whom"), "must name a column of X"),
        (DeviceKFold(3), "say whose rows these are"),
        (DeviceKFold(1, device="who"), "n_splits must be at least 2"),
        (DeviceKFold(9, device="who", time="day"), "Lower n_splits"),
        (LeaveDevicesOut(5, device="who"), "at most 4, the number of devices"),
    ],
)
def test_what_cannot_be_split_is_said(rows, folds, said):
    with pytest.raises(InputError, match=said):
        list(folds.split(rows))


def test_single_rows_and_missing_devices_are_said(rows):
    with pytest.raises(InputError, match="Use LeaveDevicesOut"):
        list(DeviceKFold(2).split(np.zeros((2, 1)), groups=["a", "b"]))
    with pytest.raises(InputError, match="1 of 3 rows have no device"):
        list(DeviceKFold(2).split(np.zeros((3, 1)), groups=["a", None, "a"]))
    with pytest.raises(InputError, match="for each of the 3 rows"):
        list(DeviceKFold(2).split(np.zeros((3, 1)), groups=["a", "a"]))
