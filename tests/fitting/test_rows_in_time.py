"""Fits that are told what repeats: by an array, a column of X, a column that lies aside."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from persfl import Linear, PersonalizedRegressor, Tree
from persfl.errors import InputError
from persfl.estimators import PersonalizedClassifier
from persfl.methods import Blend, Paper

LINEAR = Blend(trees=False)
N, T, REGIONS = 12, 10, 6


def weather(seed, N=N):
    """Neighbours of a region see nearly the same features and the same shock on a date."""
    draw = np.random.default_rng(seed)
    region = np.arange(N) % REGIONS
    X = draw.normal(size=(REGIONS, T, 5))[region] + 0.3 * draw.normal(size=(N, T, 5))
    y = (
        X[:, :, 0]
        + draw.normal(size=(REGIONS, T))[region]
        + 0.3 * draw.normal(size=(N, T))
    )
    day = np.tile(np.arange(T), N)
    table = pd.DataFrame(X.reshape(-1, 5), columns=list("abcde"))
    table["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(day, unit="D")
    table["who"] = np.repeat(np.arange(N), T)
    table["y"] = y.ravel()
    return table[day < 7], table[day >= 7]


def fit(model, table):
    return model.fit(table.drop(columns=["y"]), table["y"])


@pytest.mark.slow
def test_a_trial_that_is_told_of_dates_says_what_new_dates_bring():
    said = {"not told": [], "blocks": [], "time": []}
    words = {"not told": {}, "blocks": {"blocks": "day"}, "time": {"time": "day"}}
    for seed in range(4):
        past, future = weather(seed, 60)
        for name, told in words.items():
            model = PersonalizedRegressor(method=LINEAR, device="who", **told)
            if told:
                fit(model, past)
            else:
                model.fit(past[["who", *"abcde"]], past["y"], aside=past[["day"]])
                assert any("Set blocks='day'" in note for note in model.notes_)
            missed = model.predict(future[["who", *"abcde"]]) - future["y"]
            own = np.nanmean(model.worth_.error("personal")) * model.worth_.scale
            said[name].append(np.log(own / np.mean(missed**2)))
    close = {name: float(np.mean(each)) for name, each in said.items()}
    # three days of six regions are eighteen shocks a seed, and a trial knows fewer days
    assert abs(close["blocks"]) < 0.4
    assert abs(close["time"]) < 0.5
    assert close["not told"] < min(close["blocks"], close["time"]) - 0.3


def test_a_column_of_x_is_no_feature_and_need_not_be_there_to_predict():
    past, future = weather(0)
    model = fit(PersonalizedRegressor(method=LINEAR, device="who", time="day"), past)
    assert model.feature_names_in_.tolist() == list("abcde")
    assert model.fitted_.settings.ordered
    whole = model.predict(future.drop(columns="y"))
    np.testing.assert_array_equal(model.predict(future[["who", *"abcde"]]), whole)
    shuffled = past.sample(frac=1, random_state=0)
    again = fit(
        PersonalizedRegressor(method=LINEAR, device="who", time="day"), shuffled
    )
    np.testing.assert_allclose(again.predict(future.drop(columns="y")), whole)
    assert model.worth_.table["held"].sum() == again.worth_.table["held"].sum()
    assert not any("looks like time" in note for note in model.notes_)


def test_arrays_columns_and_what_lies_aside_are_the_same():
    past, _ = weather(1)
    features = past[["who", *"abcde"]]
    model = PersonalizedRegressor(method=LINEAR, device="who", trials=1)
    found = []
    for told, aside in (("day", past[["day"]]), (past["day"].to_numpy(), None)):
        one = clone(model).set_params(blocks=told)
        found.append(one.fit(features, past["y"], aside=aside))
    found.append(fit(clone(model).set_params(blocks="day"), past))
    for one in found[1:]:
        np.testing.assert_array_equal(one.models_, found[0].models_)
        np.testing.assert_array_equal(one.worth_.table, found[0].worth_.table)
    plain = model.fit(features, past["y"])
    assert not np.array_equal(plain.models_, found[0].models_)


def test_what_lies_aside_may_be_a_feature_too():
    past, _ = weather(1)
    past = past.assign(step=past["day"].dt.day_of_year)
    listed = past[["who", "step", *"abcde"]]
    model = PersonalizedRegressor(method=LINEAR, device="who", time="step")
    model.fit(listed, past["y"], aside=past[["step"]])
    assert "step" in model.feature_names_in_
    model.predict(listed)


def test_devices_without_a_past_are_not_judged():
    past, _ = weather(2)
    late = (past["who"] < 2) & (past["day"] < "2024-01-06")
    model = PersonalizedRegressor(method=LINEAR, device="who", time="day")
    fit(model, past[~late])
    errors = model.worth_.error("personal")
    assert np.isnan(errors[:2]).all()
    assert np.isfinite(errors[2:]).all()
    assert np.isfinite(model.models_).all()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"blocks": "nothing"}, "blocks='nothing' must name a column"),
        ({"time": "who"}, "time='who' must name a column"),
        ({"gap": 2}, "gap and horizon are for rows in the order of time"),
        ({"time": "a", "gap": "7D"}, "gap must be a number, in the units of time"),
    ],
)
def test_wrong_words_get_a_sentence(settings, says):
    past, _ = weather(0)
    features = past[["who", *"abcde"]]
    model = PersonalizedRegressor(method=LINEAR, device="who", **settings)
    with pytest.raises(InputError, match=says):
        model.fit(features, past["y"])


def test_one_key_is_refused_and_own_keys_are_noted():
    past, _ = weather(0)
    features = past[["who", *"abcde"]]
    model = PersonalizedRegressor(method=LINEAR, device="who", blocks="one")
    with pytest.raises(InputError, match="blocks must have at least two"):
        model.fit(features, past["y"], aside=pd.DataFrame({"one": np.ones(len(past))}))
    model.set_params(blocks="home").fit(
        features, past["y"], aside=past[["who"]].rename(columns={"who": "home"})
    )
    assert model.worth_ is None
    assert any("nothing could be judged" in note for note in model.notes_)


def test_a_grid_search_goes_over_them():
    past, _ = weather(0)
    few = past[past["who"] < 8]
    model = PersonalizedRegressor(
        method=LINEAR, device="who", time="day", gap="1D", horizon="2D", holdout=0
    )
    assert clone(model).get_params()["gap"] == "1D"
    grid = {
        "blocks": [None, "day"],
        "time": [None, "day"],
        "gap": [0],
        "horizon": [None],
    }
    X = few.drop(columns="y").assign(day=few["day"].dt.day_of_year)
    even = few["day"].dt.day.to_numpy() % 2 == 0
    early, late = np.flatnonzero(even), np.flatnonzero(~even)
    search = GridSearchCV(model, grid, cv=[(early, late)], error_score="raise")
    search.fit(X, few["y"])
    assert len(search.cv_results_["params"]) == 4


def test_rows_that_arrive_keep_their_time():
    past, future = weather(3)
    model = PersonalizedRegressor(
        method=LINEAR, device="who", time="day", blocks="day", window=6
    )
    for some in (past[past["day"] < "2024-01-02"], past[past["day"] >= "2024-01-02"]):
        model.partial_fit(some.drop(columns="y"), some["y"])
    assert model.rows_.tolist() == [6] * N
    known = past[past["day"] > past["day"].min()].sample(frac=1, random_state=0)
    anew = clone(model).set_params(window=None)
    # a call with rows in any order is as one with rows in theirs
    first = clone(anew).partial_fit(known.drop(columns="y"), known["y"])
    second = clone(anew).partial_fit(
        known.sort_values("day").drop(columns="y"), known.sort_values("day")["y"]
    )
    np.testing.assert_allclose(first.models_, second.models_)
    with pytest.raises(InputError, match="time must be said in every call"):
        model.set_params(time=None).partial_fit(future.drop(columns="y"), future["y"])


def test_classes_and_other_methods_are_judged_by_it_too():
    past, _ = weather(0)
    past = past.assign(y=np.where(past["y"] > 0, "up", "down"))
    model = PersonalizedClassifier(method=Paper(rounds=3), device="who", time="day")
    fit(model, past)
    assert model.worth_.table["held"].gt(0).all()


@pytest.mark.parametrize("told", [{"blocks": "day"}, {"time": "day"}])
@pytest.mark.parametrize("learner", [Tree(2), Linear("huber", intercept=True)])
def test_blends_of_other_models_hide_rows_from_everybody(told, learner):
    past, future = weather(0)
    method = Blend(budget=4)
    model = PersonalizedRegressor(
        learner, method=method, device="who", holdout=0, public=20, **told
    )
    fit(model, past)
    assert np.isfinite(model.predict(future.drop(columns="y"))).all()
    plain = PersonalizedRegressor(
        learner, method=method, device="who", holdout=0, public=20
    ).fit(past.drop(columns=["y", "day"]), past["y"])
    mixes = [one.trust_.notes["mix"] for one in (model, plain)]
    assert not np.array_equal(*mixes)
