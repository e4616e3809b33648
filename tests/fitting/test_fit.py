"""A fit as a value, below the estimators."""

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator

from persfl import Linear, PersonalizedClassifier, PersonalizedRegressor, Tree
from persfl.errors import InputError, UnseenWarning
from persfl.estimators import estimator_of
from persfl.fitting import (
    FitSettings,
    Fitted,
    Labels,
    TableSchema,
    first_arrivals,
    fit_fleet,
    fitted_of,
    judge_fleet,
    learn_table,
    learner_for,
    more_arrivals,
)
from persfl.methods import Blend, Kin, Paper
from persfl.sources import clustered_regression

METHOD = Paper(rounds=5, peers=3)
pytestmark = pytest.mark.filterwarnings("ignore:On the rows held back")


@pytest.fixture(scope="module")
def rows():
    return clustered_regression(n=8, clusters=2, rows=8, features=2, seed=0)


@pytest.fixture(scope="module")
def schema():
    return TableSchema(Labels(), features=2)


@pytest.fixture(scope="module")
def fitted(rows, schema):
    return fit_fleet(rows, METHOD, learner_for(None), FitSettings(), schema)


def test_an_estimator_shows_what_the_function_returns(rows, fitted):
    model = PersonalizedRegressor(method=METHOD).fit(rows.X, rows.y, devices=rows.owner)
    found = fitted_of(model)
    assert isinstance(found, Fitted)
    np.testing.assert_array_equal(found.models, fitted.models)
    assert found.notes == fitted.notes
    assert model.notes_ == list(fitted.notes)
    pd.testing.assert_frame_equal(model.worth_.table, fitted.worth.table)
    pd.testing.assert_frame_equal(model.helpers_, fitted.helpers())
    np.testing.assert_array_equal(
        model.predict(rows.X, devices=rows.owner), fitted.respond(rows.X, rows.owner)
    )


def test_a_result_is_frozen_and_goes_into_an_estimator_again(rows, fitted):
    with pytest.raises(FrozenInstanceError):
        fitted.models = None
    model = estimator_of(fitted)
    assert (model.method, model.n_features_in_) == (METHOD, 2)
    assert model.fitted_ is fitted
    np.testing.assert_array_equal(
        model.predict(rows.X, devices=rows.owner), fitted.respond(rows.X, rows.owner)
    )


def test_newcomers_are_predicted_by_one_model_or_refused(rows, fitted):
    with pytest.warns(UnseenWarning, match="1 row of 1 device"):
        fitted.respond(rows.X[:1], ["new"])
    with pytest.raises(InputError, match="'new' was not there"):
        fitted.respond(rows.X[:1], ["new"], unseen="error")
    with pytest.raises(InputError, match="this run has no model for newcomers"):
        replace(fitted, pooled=None).respond(rows.X[:1], ["new"])


def test_only_the_trial(rows, schema, fitted):
    worth = judge_fleet(rows, METHOD, learner_for(None), FitSettings(), schema)
    pd.testing.assert_frame_equal(worth.table, fitted.worth.table)


@pytest.mark.parametrize("few", [5, 12])
def test_errors_are_told_to_fall_with_more_rows(schema, few):
    """Where devices hold back one row each too, of which no trial can hold back fewer."""
    thin = clustered_regression(n=12, clusters=1, rows=few, features=2, seed=0)
    learner = Linear(intercept=True)
    worth = judge_fleet(thin, METHOD, learner, FitSettings(), schema)
    fall = worth.fall("own")
    assert np.isfinite(fall).all()
    assert fall.mean() > 0


def test_single_rows_of_classes_judge_nothing():
    """A model that has not seen a class says nothing of one that has."""
    random = np.random.default_rng(0)
    whose = np.repeat(np.arange(6), 5)
    y = np.tile(np.arange(5), 6)
    X = y[:, None] + random.normal(size=(30, 2))
    model = PersonalizedClassifier(method="own", random_state=0)
    model.fit(X, y, devices=whose)
    assert model.worth_ is None
    assert any("only ones of their class" in note for note in model.fitted_.notes)
    with pytest.raises(InputError, match="two rows of a class"):
        model.set_params(fallback=True).fit(X, y, devices=whose)
    twice = (np.tile(part, (2, 1)) for part in (X, y[:, None], whose[:, None]))
    X, y, whose = (part.reshape(60, -1) for part in twice)
    model.set_params(fallback=False).fit(X, y[:, 0], devices=whose[:, 0])
    assert model.worth_ is not None


def test_rows_that_arrive(rows, schema):
    method, settings = Paper(online_rounds=2), FitSettings(window=5)
    first = first_arrivals(rows, method, Linear(), settings, schema)
    assert (first.fitted.rounds, len(first.progress)) == (2, 0)
    second = more_arrivals(first, rows, method, settings)
    assert (second.fitted.rounds, len(second.progress)) == (4, 1)
    assert second.rows.counts.tolist() == [5] * 8
    assert first.fitted.rounds == 2  # a value: the one before is as it was
    with pytest.raises(InputError, match="'kin', which needs rows that stay"):
        first_arrivals(rows, Kin(), Linear(), settings, schema)


@pytest.mark.parametrize(
    ("method", "learner", "settings", "says"),
    [
        (Blend(), Linear(), {"units": "centred"}, "blend goes by shared units"),
        (Blend(), Linear(), {"compute": "cpu"}, "leave it out|Leave it out"),
        (METHOD, Linear(), {"holdout": 1.0}, "holdout must be a share below 1"),
        (METHOD, Linear(), {"window": 0}, "window must be at least 1"),
        (METHOD, Linear(), {"units": "metres"}, "units must be one of"),
    ],
)
def test_settings_that_make_no_sense(rows, schema, method, learner, settings, says):
    with pytest.raises(InputError, match=says):
        fit_fleet(rows, method, learner, FitSettings(**settings), schema)


def test_families():
    assert learner_for(None).kind == "squared"
    assert learner_for(None, classes=3).classes == 3
    assert learner_for(Tree(2)) == Tree(2)
    with pytest.raises(InputError, match="PersonalizedClassifier needs a learner"):
        learner_for(Linear(), classes=2)
    with pytest.raises(InputError, match="estimator must be None"):
        learner_for("linear")


def test_a_table_is_learned_once_and_read_by_that():
    frame = pd.DataFrame(
        {"who": list("aabb"), "x": [1.0, 2, 3, 4], "kind": list("uvuv")}
    )
    reader, labels = BaseEstimator(), Labels(numeric=False)
    schema, rows, *_ = learn_table(
        reader, frame, ["n", "y", "n", "y"], None, None, labels=labels, device="who"
    )
    assert rows.ids == ["a", "b"]
    assert schema.inputs == ["x", "kind"]
    assert schema.columns == ["x", "kind=u", "kind=v"]
    assert schema.labels.classes.tolist() == ["n", "y"]
    matrix, who = schema.matrix(reader, frame[:1], None)
    assert (matrix.tolist(), list(who)) == ([[1.0, 1.0, 0.0]], ["a"])
    with pytest.raises(InputError, match="'z' is not one of the classes"):
        schema.rows(reader, frame[:1], ["z"], None, None)


def test_a_column_that_is_the_label_in_other_units_is_named(rows):
    table = pd.DataFrame(rows.X, columns=["a", "b"]).assign(price_in_cents=rows.y**3)
    model = PersonalizedRegressor(method=METHOD, holdout=0, random_state=0)
    said = model.fit(table, rows.y, devices=rows.owner).notes_
    assert any(
        "Column 'price_in_cents' is in the label's order" in each for each in said
    )
    said = model.fit(table[["a", "b"]], rows.y, devices=rows.owner).notes_
    assert not any("label's order" in each for each in said)


def test_where_nothing_is_held_back_nothing_is_said_of_rows_held_back():
    few = clustered_regression(n=12, rows=3, features=2, seed=0)
    table = pd.DataFrame(few.X, columns=["a", "b"]).assign(year=np.tile([1, 2, 3], 12))
    model = PersonalizedRegressor(method=METHOD, random_state=0)
    said = model.fit(table, few.y, devices=few.owner).notes_
    assert any("No device has the four rows" in each for each in said)
    assert not any("rows held back" in each for each in said)
