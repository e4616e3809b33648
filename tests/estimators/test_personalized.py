"""The estimators by scikit-learn's rules and by ours."""

import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    StratifiedKFold,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

import persfl
from persfl import (
    Linear,
    PersflWarning,
    PersonalizedClassifier,
    PersonalizedRegressor,
    TopK,
    Tree,
)
from persfl.errors import InputError, NoDevicesWarning, UnseenWarning
from persfl.methods import Own, Paper
from persfl.sources import clustered_regression


@parametrize_with_checks([PersonalizedRegressor(), PersonalizedClassifier()])
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def table():
    """Thirty devices in two clusters, as a DataFrame with a text column that matters."""
    rows = clustered_regression(
        n=30, clusters=2, rows=12, features=4, noise=0.1, seed=1
    )
    frame = pd.DataFrame(rows.X, columns=list("abcd"))
    generator = np.random.default_rng(0)
    frame["kind"] = generator.choice(["x", "y", "z"], len(frame))
    frame["who"] = np.repeat([f"d{i:02}" for i in range(30)], 12)
    frame["y"] = 100 + 10 * (rows.y + 2.0 * (frame["kind"] == "x"))
    return frame.sample(frac=1, random_state=0).reset_index(drop=True)


FEATURES = ["a", "b", "c", "d", "kind"]


@pytest.fixture(scope="module")
def fitted(table):
    return PersonalizedRegressor(method="paper", random_state=0).fit(
        table[FEATURES], table["y"], devices=table["who"]
    )


def test_it_learns_who_helps(table, fitted):
    assert fitted.score(table[FEATURES], table["y"], devices=table["who"]) > 0.95
    assert fitted.worth_.fleet().says == "helps"
    assert fitted.devices_.tolist() == sorted(table["who"].unique())
    assert fitted.losses_.shape == (100, 30)
    helpers = fitted.helpers_
    assert list(helpers) == [
        "device",
        "peer",
        "asked",
        "adopted",
        "share",
        "reward_mean",
        "reward_low",
        "reward_high",
        "alike",
        "verdict",
    ]
    assert (helpers["device"] != helpers["peer"]).all()
    np.testing.assert_allclose(helpers.groupby("device")["share"].sum(), 1.0)
    assert helpers.groupby("device")["adopted"].sum().eq(100).all()
    inside = helpers["reward_mean"].between(
        helpers["reward_low"], helpers["reward_high"]
    )
    assert inside[helpers["reward_low"].notna()].all()
    better = helpers[helpers["verdict"] == "helps"]
    number = {name: i for i, name in enumerate(fitted.devices_)}
    clusters = clustered_regression(
        n=30, clusters=2, rows=12, features=4, noise=0.1, seed=1
    ).clusters
    same = (
        clusters[better["device"].map(number)] == clusters[better["peer"].map(number)]
    )
    assert same.mean() > 0.95
    assert len(better) > 30


def test_same_seed_same_result_whatever_the_order_of_rows(table, fitted):
    again = clone(fitted).fit(table[FEATURES], table["y"], devices=table["who"])
    np.testing.assert_array_equal(again.models_, fitted.models_)
    by_device = table.sort_values("who", kind="stable")
    sorted_too = clone(fitted).fit(
        by_device[FEATURES], by_device["y"], devices=by_device["who"]
    )
    np.testing.assert_array_equal(sorted_too.models_, fitted.models_)
    other = (
        clone(fitted)
        .set_params(random_state=1)
        .fit(table[FEATURES], table["y"], devices=table["who"])
    )
    assert not np.array_equal(other.models_, fitted.models_)


def test_each_row_is_predicted_by_its_own_device(table, fitted):
    one = table[table["who"] == "d07"]
    alone = fitted.predict(one[FEATURES], devices=one["who"])
    everything = fitted.predict(table[FEATURES], devices=table["who"])
    np.testing.assert_allclose(everything[one.index], alone)
    X = np.column_stack([one[list("abcd")], *(one["kind"] == k for k in "xyz")]).astype(
        float
    )
    coefficients = fitted.coefficients().loc["d07"].to_numpy()
    np.testing.assert_allclose(X @ coefficients[:-1] + coefficients[-1], alone)


def test_device_as_a_column(table, fitted):
    model = PersonalizedRegressor(device="who", method="paper", random_state=0).fit(
        table[["who", *FEATURES]], table["y"]
    )
    np.testing.assert_array_equal(model.models_, fitted.models_)
    found = cross_validate(
        PersonalizedRegressor(device="who", holdout=0, method=Paper(rounds=20)),
        table[["who", *FEATURES]],
        table["y"],
        cv=3,
        scoring=["r2", "neg_mean_squared_error"],
        error_score="raise",
    )
    assert found["test_r2"].min() > 0.8
    with pytest.raises(InputError, match="once"):
        model.predict(table[["who", *FEATURES]], devices=table["who"])
    with pytest.raises(InputError, match="column 'who'"):
        model.predict(table[FEATURES])


def test_metadata_routing_and_pipelines(table):
    numbers = list("abcd")
    with sklearn.config_context(enable_metadata_routing=True):
        model = PersonalizedRegressor(holdout=0, method=Paper(rounds=20))
        found = cross_validate(
            model,
            table[numbers],
            table["y"],
            cv=3,
            params={"devices": table["who"]},
            error_score="raise",
        )
        assert found["test_score"].min() > 0.5
        pipeline = make_pipeline(StandardScaler(), model).fit(
            table[numbers], table["y"], devices=table["who"]
        )
        assert pipeline.predict(table[numbers], devices=table["who"]).shape == (
            len(table),
        )
    plain = make_pipeline(
        StandardScaler(), PersonalizedRegressor(holdout=0, method=Paper(rounds=20))
    )
    plain.fit(table[numbers], table["y"], personalizedregressor__devices=table["who"])
    np.testing.assert_allclose(
        plain.predict(table[numbers], devices=table["who"]),
        pipeline.predict(table[numbers], devices=table["who"]),
    )


def test_html_repr_and_parameters(fitted):
    assert "PersonalizedRegressor" in fitted._repr_html_()
    assert fitted.get_params()["method"] == fitted.method
    base = PersonalizedRegressor(DecisionTreeRegressor(max_depth=3))
    assert clone(base).set_params(estimator__max_depth=2).estimator.max_depth == 2


@pytest.mark.parametrize(
    "base",
    [
        DecisionTreeRegressor(max_depth=3),
        Tree(3),
        make_pipeline(StandardScaler(), SVR()),
    ],
    ids=str,
)
def test_any_regressor(table, base):
    numbers = list("abcd")
    some = table[table["who"] < "d06"]
    model = PersonalizedRegressor(
        base, method=Paper(rounds=3, peers=3), random_state=0
    ).fit(some[numbers], some["y"], devices=some["who"])
    assert len(model.models_) == 6
    assert model.units_.kind == "raw"
    assert model.public_.shape == (100, 4)
    assert np.isfinite(model.predict(some[numbers], devices=some["who"])).all()
    assert set(model.helpers_["asked"]) <= set(range(1, 4))


def test_jobs_change_nothing(table):
    numbers, some = list("abcd"), table[table["who"] < "d05"]
    one, two = (
        PersonalizedRegressor(
            DecisionTreeRegressor(max_depth=2),
            method=Paper(rounds=2, peers=2),
            holdout=0,
            n_jobs=jobs,
        ).fit(some[numbers], some["y"], devices=some["who"])
        for jobs in (1, 2)
    )
    np.testing.assert_array_equal(
        one.predict(some[numbers], devices=some["who"]),
        two.predict(some[numbers], devices=some["who"]),
    )


def test_own_learner_units_adopter_and_public_points(table):
    numbers = list("abcd")
    huber = PersonalizedRegressor(
        Linear("huber", intercept=True),
        method=Paper(adopter=TopK(3)),
        units="centred",
        holdout=0,
    )
    huber.fit(table[numbers], table["y"], devices=table["who"])
    assert huber.score(table[numbers], table["y"], devices=table["who"]) > 0.5
    given = pd.DataFrame(np.random.default_rng(0).normal(size=(7, 4)), columns=numbers)
    trees = PersonalizedRegressor(
        Tree(2), public=given, method=Paper(rounds=1), holdout=0
    ).fit(table[numbers], table["y"], devices=table["who"])
    np.testing.assert_array_equal(trees.public_, given)
    assert PersonalizedRegressor(
        Tree(2), public=13, method=Paper(rounds=1), holdout=0
    ).fit(table[numbers], table["y"], devices=table["who"]).public_.shape == (13, 4)


def test_shared_units_make_scales_irrelevant(table):
    numbers = list("abcd")
    model = PersonalizedRegressor(holdout=0).fit(
        table[numbers], table["y"], devices=table["who"]
    )
    scaled = table[numbers] * [1e6, 1e-6, 3.0, 1.0] + [5e7, 0.0, -3.0, 0.0]
    other = PersonalizedRegressor(holdout=0).fit(
        scaled, table["y"] * 1e-4, devices=table["who"]
    )
    np.testing.assert_allclose(
        other.predict(scaled, devices=table["who"]),
        model.predict(table[numbers], devices=table["who"]) * 1e-4,
        rtol=1e-4,
    )


def test_public_points_are_nobodys_rows(table):
    model = PersonalizedRegressor(
        DecisionTreeRegressor(max_depth=2), method=Paper(rounds=1, peers=2), holdout=0
    )
    model.fit(table[FEATURES], table["y"], devices=table["who"])
    one_hot = model.public_[:, 4:]
    assert (one_hot.sum(axis=1) == 1).all()
    assert set(np.unique(one_hot)) == {0.0, 1.0}
    rows = {tuple(row) for row in table[list("abcd")].to_numpy()}
    assert not rows & {tuple(row) for row in model.public_[:, :4]}


def test_a_step_that_diverges_is_halved_and_said(table):
    model = PersonalizedRegressor(method=Paper(step_size=50.0)).fit(
        table[FEATURES], table["y"], devices=table["who"]
    )
    assert model.step_size_ < 5
    assert any("halved" in note for note in model.notes_)
    assert model.score(table[FEATURES], table["y"], devices=table["who"]) > 0.8


def test_devices_that_were_not_there(table, fitted):
    new = table[FEATURES][:3]
    strict = PersonalizedRegressor(unseen="error", holdout=0).fit(
        table[FEATURES], table["y"], devices=table["who"]
    )
    with pytest.raises(
        InputError, match="'newcomer' was not there when fitting.*unseen='pooled'"
    ):
        strict.predict(new, devices=["d01", "newcomer", "d02"])
    assert strict.pooled_ is None
    with pytest.raises(InputError, match="30 models. Say whose rows"):
        fitted.predict(new)
    with pytest.warns(UnseenWarning, match="1 row of 1 device"):
        mixed = fitted.predict(new, devices=["d01", "newcomer", "d02"])
    known = fitted.predict(new.iloc[[0, 2]], devices=["d01", "d02"])
    np.testing.assert_allclose(mixed[[0, 2]], known)
    assert abs(mixed[1] - table["y"].mean()) < 100


def test_missing_values(table):
    holes = table.copy()
    holes.loc[[1, 5, 9], "a"] = np.nan
    holes.loc[7, "kind"] = None
    with pytest.raises(
        InputError,
        match=r"4 values are missing \(NaN\) in 4 of 360 rows: a \(3\), kind \(1\).*impute=True",
    ):
        PersonalizedRegressor().fit(holes[FEATURES], holes["y"], devices=holes["who"])
    model = PersonalizedRegressor(impute=True, holdout=0).fit(
        holes[FEATURES], holes["y"], devices=holes["who"]
    )
    assert model.score(holes[FEATURES], holes["y"], devices=holes["who"]) > 0.9
    array = holes[list("abcd")].to_numpy()
    plain = PersonalizedRegressor(impute=True, holdout=0).fit(
        array, holes["y"], devices=holes["who"]
    )
    assert np.isfinite(plain.predict(array, devices=holes["who"])).all()


def test_a_category_never_seen_is_no_error(table, fitted):
    new = table[FEATURES][:1].assign(kind="never")
    assert np.isfinite(fitted.predict(new, devices=table["who"][:1])).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"a": "1,5"}, "decimal comma"),
        ({"a": [f"text {i}" for i in range(360)]}, "360 different texts"),
        ({"a": pd.Timestamp("2020-01-01")}, "dates or times"),
        ({"a": [1j] * 360}, "complex"),
        (
            {"a": [str(i) if i else "n/a" for i in range(360)]},
            "holds numbers, but 1 value is not, such as 'n/a'",
        ),
    ],
)
def test_columns_that_cannot_be_used(table, change, words):
    with pytest.raises(InputError, match=words):
        PersonalizedRegressor().fit(
            table[FEATURES].assign(**change), table["y"], devices=table["who"]
        )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": Paper(peers=30)}, "peers must be at most 29"),
        ({"method": Paper(rounds=0)}, "rounds"),
        ({"units": "metres"}, "units"),
        ({"unseen": "guess"}, "unseen"),
        ({"holdout": 1.0}, "holdout"),
        ({"holdout": 0, "fallback": True}, "fallback=True needs rows"),
        ({"trials": 9}, "trials"),
        ({"method": Paper(step_size=-1)}, "step_size"),
        ({"method": Paper(adopter=TopK)}, "adopter"),
        ({"estimator": "linear"}, "estimator must be None"),
        ({"estimator": DecisionTreeClassifier()}, "needs a regressor"),
    ],
)
def test_settings_that_make_no_sense(table, settings, words):
    with pytest.raises(InputError, match=words):
        PersonalizedRegressor(**settings).fit(
            table[list("abcd")], table["y"], devices=table["who"]
        )


def test_devices_that_make_no_sense(table):
    X, y = table[list("abcd")], table["y"]
    for devices, words in [
        (table["who"][:5], "5 entries"),
        (table["who"].where(table["who"] != "d03"), "12 rows leave it empty"),
        ([{"id": 1}] * 360, "plain ids of one kind"),
    ]:
        with pytest.raises(InputError, match=words):
            PersonalizedRegressor().fit(X, y, devices=devices)
    with pytest.raises(
        InputError, match="labels of a regression must be numbers. Got 'a'"
    ):
        PersonalizedRegressor().fit(table[FEATURES], ["a"] * 360, devices=table["who"])


# Classification


@pytest.fixture(scope="module")
def classes():
    rows = clustered_regression(
        n=20, clusters=2, rows=16, features=3, noise=0.1, seed=2
    )
    label = np.array(["low", "middle", "top"])[np.digitize(rows.y, [-0.7, 0.7])]
    return (
        pd.DataFrame(rows.X, columns=list("abc")),
        label,
        np.repeat(np.arange(20), 16),
    )


@pytest.mark.filterwarnings("ignore::persfl.PersflWarning")
def test_classes_are_names(classes):
    X, y, who = classes
    model = PersonalizedClassifier(method=Paper(rounds=60), trials=1).fit(
        X, y, devices=who
    )
    assert model.classes_.tolist() == ["low", "middle", "top"]
    chances = model.predict_proba(X, devices=who)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert (
        model.classes_[chances.argmax(axis=1)] == model.predict(X, devices=who)
    ).all()
    assert model.score(X, y, devices=who) > 0.8
    assert (
        model.worth_.mistakes("personal").mean()
        < model.worth_.mistakes("pooled").mean()
    )
    two = PersonalizedClassifier(method=Paper(rounds=60), trials=1).fit(
        X, y == "top", devices=who
    )
    assert two.learner_.kind == "logistic"
    assert two.predict(X, devices=who).dtype == bool


@pytest.mark.filterwarnings("ignore::persfl.PersflWarning")
def test_devices_without_some_class(classes):
    X, y, who = classes
    kept = ~((who < 3) & (y != "low"))
    X, y, who = X[kept], y[kept], who[kept]
    for base in (None, DecisionTreeClassifier(max_depth=2), LogisticRegression()):
        model = PersonalizedClassifier(
            base, method=Paper(rounds=2, peers=3), trials=1
        ).fit(X, y, devices=who)
        assert model.predict_proba(X, devices=who).shape == (len(X), 3)
        assert np.isfinite(
            model.worth_.error("personal")[model.worth_.table["held"] > 0]
        ).all()


def test_what_a_classifier_cannot_learn(classes):
    X, y, who = classes
    with pytest.raises(InputError, match="at least 2 classes"):
        PersonalizedClassifier().fit(X, ["a"] * len(X), devices=who)
    with pytest.raises(InputError, match="needs a classifier"):
        PersonalizedClassifier(DecisionTreeRegressor()).fit(X, y, devices=who)
    with pytest.raises(InputError, match="labels are missing"):
        PersonalizedClassifier().fit(X, np.where(y == "low", None, y), devices=who)


# Online


def test_online_goes_on_where_it_was(table):
    numbers = list("abcd")
    order = table.groupby("who").cumcount()
    model = PersonalizedRegressor(method=Paper(online_rounds=15), random_state=0)
    errors = []
    for block in range(4):
        rows = table[order // 3 == block]
        model.partial_fit(rows[numbers], rows["y"], devices=rows["who"])
        errors.append(model.score(table[numbers], table["y"], devices=table["who"]))
    assert errors[-1] > errors[0]
    assert model.n_rounds_ == 60
    assert model.rows_.tolist() == [12] * 30
    assert model.progress_["rows"].tolist() == [90, 90, 90]
    assert model.progress_["error"].iloc[-1] < model.progress_["error"].iloc[0]
    assert model.helpers_.groupby("device")["adopted"].sum().eq(60).all()
    assert model.losses_.shape == (60, 30)


def test_devices_join_and_windows_slide(table):
    numbers = list("abcd")
    early, late = table[table["who"] < "d10"], table[table["who"] >= "d08"]
    model = PersonalizedRegressor(
        method=Paper(online_rounds=5), window=8, unseen="pooled"
    )
    model.partial_fit(early[numbers], early["y"], devices=early["who"])
    before = model.models_.copy()
    model.partial_fit(late[numbers], late["y"], devices=late["who"])
    assert model.devices_.tolist() == sorted(table["who"].unique())
    assert model.rows_.max() == 8 or model.rows_[:8].tolist() == [12] * 8
    assert model.progress_["new_devices"].tolist() == [20]
    assert before.shape[0] == 10
    assert model.models_.shape[0] == 30
    assert np.isfinite(model.predict(table[numbers], devices=table["who"])).all()


def test_one_device_online_then_more(table):
    numbers = list("abcd")
    one, more = table[table["who"] == "d00"], table[table["who"] < "d04"]
    model = PersonalizedRegressor(method=Paper(online_rounds=3))
    model.partial_fit(one[numbers], one["y"], devices=one["who"])
    model.partial_fit(more[numbers], more["y"], devices=more["who"])
    assert np.isfinite(model.predict(more[numbers], devices=more["who"])).all()


def test_online_classes_are_named_first(classes):
    X, y, who = classes
    model = PersonalizedClassifier(method=Paper(online_rounds=2)).partial_fit(
        X[:200], y[:200], devices=who[:200], classes=["low", "middle", "top"]
    )
    model.partial_fit(X[200:], y[200:], devices=who[200:])
    assert model.predict_proba(X, devices=who).shape[1] == 3
    with pytest.raises(InputError, match="'other' is not one of the classes"):
        model.partial_fit(X[:2], ["low", "other"], devices=who[:2])


def test_a_failed_call_leaves_the_model_as_it_was(table):
    numbers = list("abcd")
    model = PersonalizedRegressor(method=Paper(online_rounds=3)).partial_fit(
        table[numbers], table["y"], devices=table["who"]
    )
    before = model.predict(table[numbers], devices=table["who"])
    with pytest.raises(ValueError):  # noqa: PT011
        model.partial_fit(
            table[numbers].assign(a=np.nan), table["y"], devices=table["who"]
        )
    np.testing.assert_array_equal(
        model.predict(table[numbers], devices=table["who"]), before
    )


def test_own_rows_may_be_better_and_that_is_said():
    generator = np.random.default_rng(0)
    who = np.repeat(np.arange(12), 60)
    W = generator.normal(size=(12, 3))
    X = generator.normal(size=(len(who), 3))
    y = (X * W[who]).sum(axis=1) + 0.1 * generator.normal(size=len(who))
    with pytest.warns(PersflWarning, match="own rows alone do better"):
        PersonalizedRegressor(method=Paper(rounds=5)).fit(X, y, devices=who)
    kept = PersonalizedRegressor(method=Paper(rounds=5), fallback=True).fit(
        X, y, devices=who
    )
    assert kept.fallback_.mean() > 0.9
    own = PersonalizedRegressor().fit(X[who == 3], y[who == 3], devices=who[who == 3])
    np.testing.assert_allclose(
        kept.predict(X[who == 3], devices=who[who == 3]),
        own.predict(X[who == 3]),
        rtol=0.05,
        atol=0.05,
    )


# What a reviewer found


@pytest.mark.filterwarnings("ignore::persfl.PersflWarning")
@pytest.mark.parametrize("seed", range(3))
def test_two_unlike_devices_are_no_error(seed):
    rng = np.random.default_rng(seed)
    who = np.repeat([0, 1], 20)
    X = rng.normal(size=(40, 1))
    y = np.where(who == 0, X[:, 0], -X[:, 0]) + 0.1 * rng.normal(size=40)
    model = PersonalizedRegressor(method="paper").fit(X, y, devices=who)
    assert model.worth_.fleet().says != "helps"
    assert model.step_size_ > 0.01
    online = PersonalizedRegressor(method=Paper(online_rounds=20))
    for half in (slice(0, 40, 2), slice(1, 40, 2)):
        online.partial_fit(X[half], y[half], devices=who[half])
    assert np.isfinite(online.predict(X, devices=who)).all()


def test_ids_of_another_kind_are_refused(table):
    X, y, who = table[list("abcd")], table["y"], table["who"].str[1:].astype(int)
    model = PersonalizedRegressor(
        holdout=0, method=Paper(rounds=3), unseen="pooled"
    ).fit(X, y, devices=who)
    with pytest.raises(InputError, match="'0' is known as 0.*ids of one kind"):
        model.predict(X, devices=who.astype(str))
    online = PersonalizedRegressor(method=Paper(online_rounds=2)).partial_fit(
        X, y, devices=who
    )
    with pytest.raises(InputError, match="ids of one kind"):
        online.partial_fit(X, y, devices=who.astype(str))
    with pytest.raises(InputError, match="differ in kind only"):
        PersonalizedRegressor().fit(
            X[:4], y[:4], devices=np.array([1, "1", 2, 2], dtype=object)
        )


def test_fitting_again_forgets(table):
    X, y, who = (
        table[list("abcd")].to_numpy(copy=True),
        table["y"].to_numpy(),
        table["who"],
    )
    X[::7, 0] = np.nan
    model = PersonalizedRegressor(impute=True, holdout=0, method=Paper(rounds=5)).fit(
        X, y, devices=who
    )
    model.fit(X + 1000.0, y, devices=who)
    fresh = PersonalizedRegressor(impute=True, holdout=0, method=Paper(rounds=5)).fit(
        X + 1000.0, y, devices=who
    )
    np.testing.assert_array_equal(
        model.predict(X, devices=who), fresh.predict(X, devices=who)
    )
    with pytest.warns(PersflWarning, match="starts anew"):
        model.partial_fit(X, y, devices=who)
    assert model.n_rounds_ == 10
    model.fit(X, y, devices=who)
    assert not hasattr(model, "_arrivals")


def test_public_points_are_in_the_units_of_the_run(table):
    X = table[list("abcd")] + 1000.0
    public = X.sample(50, random_state=0)
    for units in ("centred", "shared"):
        model = PersonalizedRegressor(
            Tree(2),
            units=units,
            public=public,
            method=Paper(rounds=1, peers=2),
            holdout=0,
        )
        model.fit(X, table["y"], devices=table["who"])
        assert np.abs(model.public_.mean(axis=0)).max() < 1
    online = PersonalizedRegressor(
        Tree(2), units="centred", public=public, method=Paper(online_rounds=1, peers=2)
    )
    online.partial_fit(X, table["y"], devices=table["who"])
    assert np.abs(online.public_.mean(axis=0)).max() < 1


def test_losses_that_do_not_fit_the_task(table, classes):
    X, y, who = classes
    with pytest.raises(InputError, match="loss for classes"):
        PersonalizedClassifier(Tree(2)).fit(X, y, devices=who)
    with pytest.raises(InputError, match="loss for numbers"):
        PersonalizedRegressor(Linear("logistic")).fit(
            table[list("abcd")], table["y"], devices=table["who"]
        )
    counts = np.random.default_rng(0).poisson(np.exp(0.3 * table["a"])) + 0.0
    model = PersonalizedRegressor(Linear("poisson", intercept=True), holdout=0)
    model.fit(table[list("abcd")], counts, devices=table["who"])
    assert (model.predict(table[list("abcd")], devices=table["who"]) > 0).all()


def test_a_refused_partial_fit_changes_nothing(table):
    X, y, who = table[list("abcd")], table["y"], table["who"]
    some, others = who < "d05", (who >= "d05") & (who < "d08")
    model = PersonalizedRegressor(method=Paper(online_rounds=3), window=5).partial_fit(
        X[some], y[some], devices=who[some]
    )
    assert model.rows_.tolist() == [5] * 5
    before = model.predict(X[some], devices=who[some])
    with pytest.raises(InputError, match="online_rounds"):
        model.set_params(method__online_rounds=-1).partial_fit(
            X[others], y[others], devices=who[others]
        )
    np.testing.assert_array_equal(model.predict(X[some], devices=who[some]), before)
    assert len(model.devices_) == 5
    model.set_params(method__online_rounds=1).partial_fit(
        X[others], y[others], devices=who[others]
    )
    assert len(model.devices_) == 8
    never = PersonalizedRegressor(method=Paper(step_size=-1))
    with pytest.raises(InputError, match="step_size"):
        never.partial_fit(X[some], y[some], devices=who[some])
    never.set_params(method__step_size="auto").partial_fit(
        X[some], y[some], devices=who[some]
    )


def test_odd_tables(table):
    X, y, who = table[FEATURES], table["y"], table["who"]
    numbered = X.rename(columns=dict(zip(FEATURES, [4, 3, 2, 1, 0], strict=True)))
    model = PersonalizedRegressor(holdout=0, method=Paper(rounds=5)).fit(
        numbered, y, devices=who
    )
    named = PersonalizedRegressor(holdout=0, method=Paper(rounds=5)).fit(
        X, y, devices=who
    )
    np.testing.assert_allclose(
        model.predict(numbered, devices=who), named.predict(X, devices=who)
    )
    with sklearn.config_context(transform_output="pandas"):
        twin = X.rename(columns={"a": "kind_x"})
        PersonalizedRegressor(holdout=0, method=Paper(rounds=2)).fit(
            twin, y, devices=who
        ).predict(twin, devices=who)
    with pytest.raises(InputError, match="infinite"):
        named.predict(X.assign(a=np.inf), devices=who)
    coded = X.assign(kind=pd.Categorical(pd.factorize(X["kind"])[0]))
    assert (
        PersonalizedRegressor(holdout=0, method=Paper(rounds=2))
        .fit(coded, y, devices=who)
        .n_columns_
        == 7
    )
    holes = pd.Series(np.where(X["a"] > 0, "up", None), dtype="string")
    with pytest.raises(InputError, match="labels are missing"):
        PersonalizedClassifier().fit(X[list("abcd")], holes, devices=who)


def test_single_rows_and_constant_columns_are_said(table):
    X, y, who = table[FEATURES].assign(kind="same"), table["y"], table["who"].copy()
    who.iloc[0] = "lonely"
    with pytest.warns(PersflWarning) as said:
        PersonalizedRegressor(holdout=0, method=Paper(rounds=2)).fit(X, y, devices=who)
    texts = [str(warning.message) for warning in said]
    assert any("'lonely' has a single row" in text for text in texts)
    assert any("'kind=same' has the same value" in text for text in texts)


def test_what_fallback_did_is_said():
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(12), 60)
    X = rng.normal(size=(len(who), 3))
    y = (X * rng.normal(size=(12, 3))[who]).sum(axis=1)
    model = PersonalizedRegressor(method=Paper(rounds=5), fallback=True).fit(
        X, y, devices=who
    )
    assert any("keep the model of their own rows" in note for note in model.notes_)
    with pytest.raises(InputError, match="holdout"):
        PersonalizedRegressor(holdout=-1).fit(X, y, devices=who)
    with pytest.raises(InputError, match="holdout"):
        PersonalizedRegressor(holdout=float("nan")).fit(X, y, devices=who)


# Devices that were not there, and devices that were forgotten


SPLITS = {
    "as they come": (KFold(3), None),
    "by device": (GroupKFold(3), "who"),
    "shuffled": (KFold(3, shuffle=True, random_state=0), None),
}


@pytest.fixture(scope="module")
def sorted_by_device(table):
    """Rows as a table has them, device by device, with one device of a single row."""
    rows = table.sort_values("who", kind="stable").groupby("who").head(6)
    return rows[
        (rows["who"] != "d29") | (rows.groupby("who").cumcount() == 0)
    ].reset_index(drop=True)


@pytest.mark.filterwarnings("ignore::persfl.PersflWarning")
@pytest.mark.parametrize("split", SPLITS)
def test_cross_validation_of_a_regressor(sorted_by_device, split):
    rows = sorted_by_device
    cv, group = SPLITS[split]
    model = PersonalizedRegressor(device="who", method=Paper(rounds=3), holdout=0)
    groups = None if group is None else rows[group]
    found = cross_val_score(
        model, rows[["who", *"abcd"]], rows["y"], cv=cv, groups=groups
    )
    assert np.isfinite(found).all()


@pytest.mark.filterwarnings("ignore::persfl.PersflWarning")
def test_cross_validation_of_a_classifier(sorted_by_device):
    rows = sorted_by_device
    model = PersonalizedClassifier(device="who", method=Paper(rounds=3), holdout=0)
    cv = StratifiedKFold(3, shuffle=True, random_state=0)
    assert np.isfinite(
        cross_val_score(model, rows[["who", *"abcd"]], rows["y"] > 100, cv=cv)
    ).all()


@pytest.mark.filterwarnings("ignore::persfl.PersflWarning")
def test_a_search_over_a_grid(sorted_by_device):
    rows = sorted_by_device[sorted_by_device["who"] > "d22"]
    base = PersonalizedRegressor(
        DecisionTreeRegressor(),
        device="who",
        method=Paper(rounds=1, peers=2),
        holdout=0,
    )
    cv = KFold(2, shuffle=True, random_state=0)
    search = GridSearchCV(
        base, {"estimator__max_depth": [1, 2]}, cv=cv, error_score="raise"
    )
    search.fit(rows[["who", *"abcd"]], rows["y"])
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_a_new_device_is_predicted_as_the_fleet_and_that_is_said_once(table):
    X, y, who = table[list("abcd")], table["y"], table["who"]
    model = PersonalizedRegressor(method=Paper(rounds=3), holdout=0).fit(
        X, y, devices=who
    )
    mixed = who.where(who > "d01", "x" + who)
    with pytest.warns(
        UnseenWarning,
        match=r"24 rows of 2 devices that were not there.*unseen='error' refuses",
    ) as said:
        found = model.predict(X, devices=mixed)
    assert len(said) == 1
    assert said[0].filename == __file__
    pooled = Ridge(alpha=1e-9).fit(X, y).predict(X)
    new = (mixed != who).to_numpy()
    np.testing.assert_allclose(found[new], pooled[new], rtol=1e-6)
    np.testing.assert_array_equal(found[~new], model.predict(X, devices=who)[~new])
    with pytest.warns(UnseenWarning, match="12 rows of 1 device that was not there"):
        model.predict(X, devices=who.replace("d05", "else"))
    model.set_params(unseen="error")
    with pytest.raises(
        InputError, match="devices 'xd0.', 'xd0.' were not there when fitting"
    ):
        model.predict(X, devices=mixed)


def test_forgetting_devices_is_said(table):
    X, y = table[list("abcd")], table["y"]
    with pytest.warns(
        NoDevicesWarning, match="all of them count as one device's.*devices="
    ) as said:
        PersonalizedRegressor().fit(X, y)
    assert said[0].filename == __file__
    with pytest.warns(NoDevicesWarning):
        PersonalizedClassifier().partial_fit(X, y > 100)
    # said, so there is nothing to warn of
    PersonalizedRegressor().fit(X, y, devices=["one"] * len(X))
    PersonalizedRegressor(device="who").fit(table[["who", *"abcd"]].assign(who=1), y)


def test_devices_may_be_the_name_of_a_column(table):
    X, y = table[["who", *"abcd"]], table["y"]
    model = PersonalizedRegressor(method=Paper(rounds=2), random_state=0, holdout=0)
    by_name = clone(model).fit(X, y, devices="who")
    by_ids = clone(model).fit(X[list("abcd")], y, devices=X["who"])
    assert list(by_name.feature_names_in_) == list("abcd")
    expected = by_ids.predict(X[list("abcd")], devices=X["who"].to_numpy())
    np.testing.assert_array_equal(by_name.predict(X, devices="who"), expected)
    np.testing.assert_array_equal(
        by_name.predict(X[list("abcd")], devices=X["who"]), expected
    )
    assert by_name.score(X, y, devices="who") == by_ids.score(
        X[list("abcd")], y, devices=X["who"]
    )
    named = clone(model).set_params(device="who").fit(X, y, devices="who")
    np.testing.assert_array_equal(named.predict(X), expected)


def test_a_device_column_left_among_the_features_is_named(table):
    few = table.groupby("who").head(3)
    model = PersonalizedRegressor(method=Paper(rounds=1), holdout=0)
    with pytest.warns(PersflWarning, match=r"'who' says whose row it is.*='who'\.$"):
        model.fit(few[["who", "a"]], few["y"], devices=few["who"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(few[["a"]], few["y"], devices=few["who"])
        model.fit(few[["who", "a"]], few["y"], devices="who")


@pytest.mark.parametrize("do", ["fit", "predict", "score"])
def test_devices_that_name_no_column_are_one_sentence(table, fitted, do):
    model = PersonalizedRegressor() if do == "fit" else fitted
    labels = () if do == "predict" else (table["y"],)
    wanted = r"X must be a table with the column 'wo' that says whose row it is\."
    with pytest.raises(InputError, match=wanted + r" Did you mean 'who'\?$"):
        getattr(model, do)(table[["who", *FEATURES]], *labels, devices="wo")
    nameless = (
        r" Got ndarray, which has no names: .* say set_output\(transform='pandas'\)"
    )
    with pytest.raises(InputError, match=wanted + nameless + r" there\.$"):
        getattr(model, do)(table[list("abcd")].to_numpy(), *labels, devices="wo")


@pytest.mark.parametrize("features", [list("abcd"), FEATURES])
def test_labels_that_are_no_numbers(table, features):
    X, y, who = table[features], table["y"], table["who"]
    with pytest.raises(
        InputError,
        match="labels of a regression must be numbers. Got 'd.*use PersonalizedClassifier",
    ):
        PersonalizedRegressor().fit(X, who, devices=who)
    for model in (PersonalizedRegressor(), PersonalizedClassifier()):
        label = y if isinstance(model, PersonalizedRegressor) else y > 100
        holes = label.astype(float).where(np.arange(len(y)) % 100 != 0)
        for given in (holes, holes.to_numpy(), holes.astype("Float64")):
            with pytest.raises(
                InputError,
                match=r"4 of 360 labels are missing \(NaN\). Drop those rows.",
            ):
                model.fit(X, given, devices=who)
    with pytest.raises(ValueError, match="infinit"):
        PersonalizedRegressor().fit(X, y.replace(y[0], np.inf), devices=who)


def test_numbers_too_large_to_compute_with(table):
    X, y, who = table[list("abcd")], table["y"], table["who"]
    giant = X.copy()
    giant.loc[3, "b"] = -1e300
    for do in (
        lambda: PersonalizedRegressor().fit(giant, y, devices=who),
        lambda: PersonalizedRegressor().fit(giant.assign(k="t"), y, devices=who),
        lambda: (
            PersonalizedRegressor(method=Paper(rounds=1), holdout=0)
            .fit(X, y, devices=who)
            .predict(giant, devices=who)
        ),
    ):
        with pytest.raises(
            InputError, match=r"column 'b' holds -1e\+300, too large to compute with"
        ):
            do()
    with pytest.raises(InputError, match=r"y holds 1e\+200, too large"):
        PersonalizedRegressor().fit(X, y.replace(y[0], 1e200), devices=who)
    with pytest.raises(InputError, match="sample_weight holds"):
        PersonalizedRegressor().fit(
            X, y, devices=who, sample_weight=np.where(who == "d01", 1e200, 1.0)
        )
    almost = X.assign(b=X["b"] * 1e99)
    assert np.isfinite(
        PersonalizedRegressor(method=Paper(rounds=2), holdout=0)
        .fit(almost, y, devices=who)
        .predict(almost, devices=who)
    ).all()


def test_a_pipeline_that_leaves_devices_out_is_named(table):
    X, y, who = table[list("abcd")], table["y"], table["who"]
    pipeline = make_pipeline(
        StandardScaler(), PersonalizedRegressor(holdout=0, method=Paper(rounds=2))
    )
    pipeline.fit(X, y, personalizedregressor__devices=who)
    with pytest.raises(
        InputError,
        match=r"30 models.*If you did, a pipeline.*left it out.*enable_metadata_routing=True",
    ):
        pipeline[-1].score(pipeline[0].transform(X), y)


def test_a_leaked_label_accuses_nobody(table):
    X, y, who = table[list("abcd")], table["y"], table["who"]
    model = PersonalizedRegressor(method="paper", holdout=0).fit(
        X.assign(leak=y), y, devices=who
    )
    blend = PersonalizedRegressor(holdout=0).fit(X.assign(leak=y), y, devices=who)
    assert not [
        note for note in model.notes_ + blend.notes_ if "unlike all others" in note
    ]


def test_several_devices_have_and_one_has(table):
    X, y, who = table[list("abcd")], table["y"], table["who"].copy()
    who.iloc[:2] = ["lonely", "alone"]
    with pytest.warns(
        PersflWarning,
        match="^devices 'alone', 'lonely' have a single row: too little to tell who helps.$",
    ):
        PersonalizedRegressor(holdout=0, method=Paper(rounds=2)).fit(X, y, devices=who)


def test_the_insides_of_scikit_learn_are_where_we_look_for_them():
    """A canary: the one private function that is used exists, and still refuses what it should."""
    from persfl.learners.named import learner_named
    from persfl.learners.sklearn_api import check_settings

    check_settings(DecisionTreeRegressor(max_depth=2))
    with pytest.raises((TypeError, ValueError), match="max_depth"):
        check_settings(DecisionTreeRegressor(max_depth="deep"))
    with pytest.raises(InputError, match="these settings do not fit model 'forest'"):
        learner_named("forest", settings={"n_estimators": -1})
    source = Path(persfl.__file__).parent
    private = re.compile(
        r"from sklearn\.\S* import .*\b_|from sklearn\.(\w+\.)*_|\._validate_params"
    )
    users = [
        path.name for path in source.rglob("*.py") if private.search(path.read_text())
    ]
    assert users == ["sklearn_api.py"]


TOWNS = np.repeat(["a", "b", "c"], 8)


def town_table():
    draw = np.random.default_rng(0)
    return pd.DataFrame(
        {"x": draw.normal(size=24), "z": draw.normal(size=24), "who": TOWNS}
    )


@pytest.mark.parametrize("kind", [bool, object, "boolean"])
def test_true_and_false_are_classes_whatever_holds_them(kind):
    table = town_table()
    y = (table["x"] > 0).astype(kind)
    model = PersonalizedClassifier(method=Own(), device="who", holdout=0).fit(table, y)
    assert model.predict(table).dtype == bool
    assert model.score(table, (table["x"] > 0).to_numpy()) > 0.8


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (["passthrough"], "X must be a table with the column 'who'.*set_output"),
        (["pandas"], "came as 'remainder__who': say verbose_feature_names_out=False"),
    ],
)
def test_a_pipeline_that_loses_the_column_is_told_how_to_keep_it(steps, words):
    scaled = ColumnTransformer(
        [("s", StandardScaler(), ["x"])], remainder="passthrough"
    )
    if steps == ["pandas"]:
        scaled.set_output(transform="pandas")
    table = town_table()
    model = PersonalizedRegressor(method=Own(), device="who", holdout=0)
    with pytest.raises(InputError, match=words):
        make_pipeline(scaled, model).fit(table, table["z"])


def test_a_column_by_its_number_is_a_sentence():
    table = town_table()
    with pytest.raises(InputError, match="X must be a table with the column 2"):
        PersonalizedRegressor(method=Own(), device=2).fit(table.to_numpy(), table["z"])


def test_labels_of_another_number_of_rows_are_counted(table):
    X, who = table[list("abcd")], table["who"]
    for few in (table["y"][:100], table["y"][:100].to_numpy()):
        with pytest.raises(
            InputError,
            match=rf"^there must be one label per row. Got {len(X)} rows and 100 labels\.$",
        ):
            PersonalizedRegressor(holdout=0).fit(X, few, devices=who)
