"""A graph of the fleet says what `predict` says."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeRegressor

from persfl import PersonalizedClassifier, PersonalizedRegressor
from persfl.errors import InputError
from persfl.exports import onnx_fleet, plain_estimator
from persfl.learners import MLP
from persfl.methods import Blend, Paper

runtime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
pytestmark = pytest.mark.filterwarnings("ignore::persfl.PersflWarning")


def table(rows=12, devices=6, seed=0):
    luck = np.random.default_rng(seed)
    n = rows * devices
    frame = pd.DataFrame(
        {
            "who": np.repeat([f"d{i}" for i in range(devices)], rows),
            "a": luck.normal(size=n),
            "b": luck.normal(3.0, 2.0, size=n),
            "kind": luck.choice(["x", "y", "z"], size=n),
        }
    )
    steep = np.repeat(luck.normal(1.0, 0.5, size=devices), rows)
    frame["y"] = steep * frame["a"] + np.sin(frame["b"]) + (frame["kind"] == "x")
    return frame


def graph_of(model):
    graph = onnx_fleet(model.fitted_)
    return runtime.InferenceSession(
        graph.SerializeToString(), providers=["CPUExecutionProvider"]
    )


def fed(frame, columns):
    found = {"device": frame["who"].to_numpy(dtype=object)}
    for name in columns:
        number = frame[name].dtype.kind in "if"
        found[name] = frame[name].to_numpy(dtype=np.float64 if number else object)
    return found


NUMBERS = {
    "linear, with trees of the fleet": (None, Blend()),
    "linear, about own means": (None, Paper(rounds=3)),
    "a tree each": (DecisionTreeRegressor(max_depth=3), Paper(rounds=2)),
    "trees blended": (DecisionTreeRegressor(max_depth=3), Blend()),
    "networks": (MLP(hidden=(4,)), Paper(rounds=2)),
}


@pytest.mark.smoke
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name):
    estimator, method = NUMBERS[name]
    rows = 40 if name.startswith("linear, with") else 12
    frame = table(rows)
    columns = ["a", "b", "kind"]
    units = "centred" if "own means" in name else "auto"
    model = PersonalizedRegressor(
        estimator, device="who", method=method, holdout=0, units=units
    )
    model.fit(frame[["who", *columns]], frame["y"])
    new = table(5, devices=8, seed=1)  # two devices that were not there
    (found,) = graph_of(model).run(None, fed(new, columns))
    np.testing.assert_allclose(found, model.predict(new[["who", *columns]]), atol=1e-5)


@pytest.mark.parametrize("name", NUMBERS)
def test_one_device_alone(name):
    estimator, method = NUMBERS[name]
    frame = table(40 if name.startswith("linear, with") else 12)
    model = PersonalizedRegressor(estimator, device="who", method=method, holdout=0)
    model.fit(frame[["who", "a", "b"]], frame["y"])
    graph = onnx_fleet(model.fitted_, "d3")
    assert [given.name for given in graph.graph.input] == ["a", "b"]
    own = frame[frame["who"] == "d3"]
    session = runtime.InferenceSession(graph.SerializeToString())
    inputs = {"a": own["a"].to_numpy(), "b": own["b"].to_numpy()}
    (found,) = session.run(None, inputs)
    np.testing.assert_allclose(found, model.predict(own[["who", "a", "b"]]), atol=1e-5)


CLASSES = {
    "linear, with trees of the fleet": (None, Blend()),
    "logistic": (None, Paper(rounds=3)),
    "forests": (RandomForestClassifier(4, max_depth=3), Paper(rounds=1)),
    "boosting": (GradientBoostingClassifier(n_estimators=4), Paper(rounds=1)),
}


@pytest.mark.parametrize("many", [2, 3])
@pytest.mark.parametrize("name", CLASSES)
def test_classes(name, many):
    estimator, method = CLASSES[name]
    frame = table(40 if name.startswith("linear, with") else 12)
    labels = np.array(["low", "middle", "high"][:many])
    y = labels[pd.qcut(frame["y"], many, labels=False)]
    y[:12] = "low"  # a device that has seen one class alone
    model = PersonalizedClassifier(estimator, device="who", method=method, holdout=0)
    model.fit(frame[["who", "a", "b"]], y)
    new = table(5, devices=8, seed=1)
    label, chances = graph_of(model).run(None, fed(new, ["a", "b"]))
    X = new[["who", "a", "b"]]
    np.testing.assert_allclose(chances, model.predict_proba(X), atol=1e-5)
    assert label.tolist() == model.predict(X).tolist()


def test_whole_numbers_as_devices_and_gaps():
    frame = table().assign(who=lambda f: f["who"].str[1:].astype(int) * 10)
    frame.loc[3, "a"] = np.nan
    model = PersonalizedRegressor(device="who", method="own", holdout=0, impute=True)
    model.fit(frame[["who", "a", "kind"]], frame["y"])
    X = frame[["who", "a", "kind"]]
    inputs = {
        "device": frame["who"].to_numpy(),
        "a": frame["a"].to_numpy(),
        "kind": frame["kind"].to_numpy(dtype=object),
    }
    (found,) = graph_of(model).run(None, inputs)
    np.testing.assert_allclose(found, model.predict(X), atol=1e-9)


def test_without_a_model_for_newcomers_they_get_no_number():
    frame = table()
    model = PersonalizedRegressor(device="who", method="own", holdout=0, unseen="error")
    model.fit(frame[["who", "a"]], frame["y"])
    (found,) = graph_of(model).run(None, fed(frame.assign(who="new"), ["a"]))
    assert np.isnan(found).all()


def test_a_feature_called_device_is_refused():
    frame = table().rename(columns={"a": "device"})
    model = PersonalizedRegressor(device="who", method="own", holdout=0)
    model.fit(frame[["who", "device"]], frame["y"])
    with pytest.raises(InputError, match="Rename that column"):
        onnx_fleet(model.fitted_)


@pytest.mark.parametrize("units", ["shared", "centred", "raw"])
def test_a_plain_estimator_of_one_device(units):
    frame = table()
    model = PersonalizedRegressor(
        device="who", method=Paper(rounds=3), holdout=0, units=units
    )
    model.fit(frame[["who", "a", "b"]], frame["y"])
    own = frame[frame["who"] == "d2"]
    found = plain_estimator(model.fitted_, "d2").predict(own[["a", "b"]])
    np.testing.assert_allclose(found, model.predict(own[["who", "a", "b"]]))


@pytest.mark.parametrize("many", [2, 3])
def test_a_plain_classifier_of_one_device(many):
    frame = table()
    y = np.array(["low", "middle", "high"])[pd.qcut(frame["y"], many, labels=False)]
    model = PersonalizedClassifier(device="who", method=Paper(rounds=3), holdout=0)
    model.fit(frame[["who", "a", "b"]], y)
    own = frame[frame["who"] == "d2"]
    plain = plain_estimator(model.fitted_, "d2")
    X = own[["who", "a", "b"]]
    np.testing.assert_allclose(
        plain.predict_proba(own[["a", "b"]]), model.predict_proba(X)
    )
    assert plain.predict(own[["a", "b"]]).tolist() == model.predict(X).tolist()


def test_what_no_plain_estimator_says_is_refused():
    frame = table()
    model = PersonalizedRegressor(device="who", method="own", holdout=0)
    model.fit(frame[["who", "a", "kind"]], frame["y"])
    with pytest.raises(InputError, match="Export ONNX"):
        plain_estimator(model.fitted_, "d1")
    with pytest.raises(InputError, match="there is no device 'd99'"):
        plain_estimator(model.fitted_, "d99")
