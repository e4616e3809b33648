"""Searches and cross-validations of scikit-learn with `devices` in the call: numbers or a sentence,
never nan.
"""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.linear_model import Ridge
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
    permutation_test_score,
    validation_curve,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from persfl import DeviceKFold, PersonalizedClassifier, PersonalizedRegressor
from persfl.errors import InputError

GRID = {"method": ["own", "pooled"]}
STEP = "personalizedregressor"


@pytest.fixture(scope="module")
def rows():
    """Six towns with slopes of their own."""
    draw = np.random.default_rng(0)
    town = np.repeat([f"t{i}" for i in range(6)], 12)
    table = pd.DataFrame({"a": draw.normal(size=72), "b": draw.normal(size=72)})
    slope = np.repeat(draw.normal(size=6), 12)
    table["y"] = slope * table["a"] + table["b"] + 0.1 * draw.normal(size=72)
    table["town"] = town
    return table.sample(frac=1, random_state=0).reset_index(drop=True)


def plain(**settings):
    return PersonalizedRegressor(method="own", holdout=0, **settings)


def words(rows):
    return {"devices": rows["town"]}


CALLS = {
    "grid": lambda m, X, y, w: GridSearchCV(m, GRID, cv=3).fit(X, y, **w),
    "two jobs": lambda m, X, y, w: GridSearchCV(m, GRID, cv=3, n_jobs=2).fit(X, y, **w),
    "scoring": lambda m, X, y, w: GridSearchCV(m, GRID, cv=3, scoring="r2").fit(
        X, y, **w
    ),
    "random": lambda m, X, y, w: RandomizedSearchCV(m, GRID, n_iter=2, cv=3).fit(
        X, y, **w
    ),
    "halving": lambda m, X, y, w: HalvingGridSearchCV(m, GRID, cv=3).fit(X, y, **w),
    "nested": lambda m, X, y, w: cross_val_score(
        GridSearchCV(m, GRID, cv=2), X, y, params=w
    ),
    "scores": lambda m, X, y, w: cross_val_score(m, X, y, params=w),
    "validate": lambda m, X, y, w: cross_validate(m, X, y, params=w),
    "predict": lambda m, X, y, w: cross_val_predict(m, X, y, params=w),
    "curve": lambda m, X, y, w: learning_curve(m, X, y, cv=3, params=w),
    "settings": lambda m, X, y, w: validation_curve(
        m, X, y, param_name="units", param_range=["shared"], params=w
    ),
    "permuted": lambda m, X, y, w: permutation_test_score(
        m, X, y, n_permutations=2, params=w
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_search_that_would_lose_devices_stops_before_its_fits(rows, call):
    with pytest.raises(
        InputError,
        match=r"^scikit-learn hands devices= to fits only.*hand in its name, devices='town', or"
        r" write sklearn\.set_config\(enable_metadata_routing=True\) first\.$",
    ):
        CALLS[call](plain(), rows[["a", "b"]], rows["y"], words(rows))


def test_what_that_sentence_says_to_type_works(rows):
    X, y = rows[["a", "b"]], rows["y"]
    by_column = cross_val_score(plain(device="town"), rows[["town", "a", "b"]], y, cv=3)
    assert np.isfinite(by_column).all()
    named = cross_val_score(
        plain(), rows[["town", "a", "b"]], y, cv=3, params={"devices": "town"}
    )
    np.testing.assert_array_equal(named, by_column)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = cross_val_score(plain(), X, y, cv=3, params=words(rows))
        np.testing.assert_array_equal(routed, by_column)
        search = GridSearchCV(plain(), GRID, cv=DeviceKFold(3))
        search.fit(X, y, devices=rows["town"])
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()
        assert search.best_params_ == {"method": "own"}
        pipeline = make_pipeline(StandardScaler(), plain())
        steps = GridSearchCV(pipeline, {f"{STEP}__method": ["own"]}, cv=3)
        steps.fit(X, y, devices=rows["town"])
        assert np.isfinite(steps.cv_results_["mean_test_score"]).all()


def test_a_pipeline_in_a_search_is_told_of_routing(rows):
    pipeline = make_pipeline(StandardScaler(), plain())
    search = GridSearchCV(pipeline, {f"{STEP}__method": ["own"]}, cv=3)
    with pytest.raises(
        InputError,
        match=f"hands {STEP}__devices= to fits only.*set_config.* and hand in devices= instead of"
        f" {STEP}__devices=.$",
    ):
        search.fit(rows[["a", "b"]], rows["y"], **{f"{STEP}__devices": rows["town"]})


def test_with_routing_what_still_predicts_without_devices_is_named(rows):
    X, y = rows[["a", "b"]], rows["y"]
    with sklearn.config_context(enable_metadata_routing=True):
        with pytest.raises(InputError, match="^a scorer named by scoring= predicts"):
            CALLS["scoring"](plain(), X, y, words(rows))
        with pytest.raises(InputError, match="^this function of scikit-learn predicts"):
            cross_val_predict(plain(), X, y, params={"devices": rows["town"].to_list()})


def test_chances_are_routed_as_well(rows):
    with sklearn.config_context(enable_metadata_routing=True):
        model = PersonalizedClassifier(method="own", holdout=0)
        assert model.get_metadata_routing().predict_proba.requests == {"devices": True}
        scores = cross_val_score(
            model, rows[["a", "b"]], rows["y"] > 0, params=words(rows)
        )
    assert np.isfinite(scores).all()


def test_other_estimators_and_plain_clones_are_left_alone(rows):
    X, y = rows[["a", "b"]], rows["y"]
    weights = np.ones(len(rows))
    assert np.isfinite(
        cross_val_score(Ridge(), X, y, params={"sample_weight": weights})
    ).all()
    assert clone(plain(units="shared")).units == "shared"


def test_a_column_named_in_fit_is_known_when_predicting(rows):
    X, y = rows[["town", "a", "b"]], rows["y"]
    model = plain().fit(X, y, devices="town")
    expected = model.predict(X, devices="town")
    np.testing.assert_array_equal(model.predict(X), expected)
    np.testing.assert_array_equal(model.predict(X, devices=rows["town"]), expected)
    without = rows[["a", "b"]]
    np.testing.assert_array_equal(
        model.predict(without, devices=rows["town"]), expected
    )
    with pytest.raises(InputError, match="there are 6 models"):
        model.predict(without)
