"""Callbacks are told every round; trackers get a few numbers of the fleet, and MLflow a model."""

from __future__ import annotations

import gc

import numpy as np
import pandas as pd
import pytest

from persfl import PersonalizedClassifier, PersonalizedRegressor
from persfl.errors import InputError
from persfl.methods import Paper
from persfl.tracking import Callback, TensorBoard, WandB

pytestmark = pytest.mark.filterwarnings("ignore::persfl.PersflWarning")


@pytest.fixture(scope="module", autouse=True)
def rubbish_of_mlflow():
    """MLflow's database makes classes whose source `linecache` lists until they are rubbish. Were
    they found to be rubbish while a doctest walks that list, the doctest would end in a KeyError.
    """
    yield
    gc.collect()


def table():
    luck = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"who": np.repeat(list("abcdef"), 8), "x": luck.normal(size=48)}
    )
    frame["z"] = luck.normal(size=48)
    frame["y"] = frame["x"] - frame["z"] + 0.1 * luck.normal(size=48)
    return frame


def fitted(**more):
    frame = table()
    model = PersonalizedRegressor(device="who", method=Paper(rounds=3), trials=1)
    return model.fit(frame[["who", "x", "z"]], frame["y"], **more)


class Listening(Callback):
    def __init__(self):
        self.heard = []

    def on_round(self, round_, stage):
        self.heard.append((stage, round_.r))

    def on_fit(self, fitted):
        self.heard.append(("done", len(fitted.devices)))


def test_callbacks_hear_every_round_of_every_stage():
    rounds = []
    one = Listening()
    model = fitted(callbacks=[one, rounds.append])
    stages = [(stage, r) for stage in ("trial-0", "final") for r in range(3)]
    assert one.heard == [*stages, ("done", 6)]
    assert len(rounds) == 6
    np.testing.assert_array_equal(rounds[-1].loss, model.losses_[-1])


def test_a_callback_changes_nothing():
    told = fitted(callbacks=[Listening()])
    np.testing.assert_array_equal(told.models_, fitted().models_)


@pytest.mark.parametrize("bad", [[Listening], [3], ["tensorboard"]])
def test_what_cannot_be_told_is_refused_before_the_fit(bad):
    with pytest.raises(InputError, match="callbacks must be a list"):
        fitted(callbacks=bad)


class Run:
    """Stands where `wandb.init()` gives a run: it needs an account."""

    def __init__(self):
        self.lines = []
        self.summary = {}

    def log(self, values):
        self.lines.append(values)


def test_weights_and_biases_gets_a_few_names():
    run = Run()
    fitted(callbacks=[WandB(run)])
    assert len(run.lines) == 6
    names = {name for line in run.lines for name in line}
    assert len(names) <= 10  # never one per device
    assert run.lines[-1]["final/round"] == 2
    assert np.isfinite(run.summary["gain"])


@pytest.mark.smoke
def test_tensorboard_files_hold_the_curves(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fitted(callbacks=[TensorBoard(tmp_path)])
    seen = EventAccumulator(str(tmp_path)).Reload()
    tags = seen.Tags()["scalars"]
    assert {"trial-0/loss", "final/loss", "final/adopted", "fleet/gain"} <= set(tags)
    assert [point.step for point in seen.Scalars("final/loss")] == [0, 1, 2]
    assert len(tags) < 25


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/tracks.db")
    return mlflow


@pytest.mark.smoke
@pytest.mark.slow  # MLflow makes a database
@pytest.mark.filterwarnings("ignore")  # of MLflow's own
def test_mlflow_predicts_what_the_fleet_predicts(mlflow):
    from persfl.mlflow import Tracker, log_model

    frame = table()
    with mlflow.start_run() as run:
        model = fitted(callbacks=[Tracker()])
        logged = log_model(model)
    loaded = mlflow.pyfunc.load_model(logged.model_uri)
    new = frame[["who", "x", "z"]]
    np.testing.assert_allclose(loaded.predict(new), model.predict(new))
    whole = new.assign(x=new["x"].round().astype(int))
    np.testing.assert_allclose(loaded.predict(whole), model.predict(whole))
    with pytest.raises(mlflow.MlflowException, match="missing inputs"):
        loaded.predict(new.drop(columns="x"))
    known = mlflow.get_run(run.info.run_id).data
    assert known.params["method"] == "paper"
    assert {"gain", "error_own", "error_personal", "final.loss"} <= set(known.metrics)
    assert len(known.metrics) < 25
    inputs = loaded.metadata.get_input_schema().input_names()
    assert inputs == ["who", "x", "z"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mlflow_of_classes_with_devices_handed_in(mlflow):
    from persfl.mlflow import log_model

    frame = table()
    label = np.where(frame["y"] > 0, "up", "down")
    model = PersonalizedClassifier(method=Paper(rounds=2), holdout=0)
    model.fit(frame[["x", "z"]], label, devices=frame["who"])
    with mlflow.start_run():
        logged = log_model(model)
    loaded = mlflow.pyfunc.load_model(logged.model_uri)
    new = frame[["x", "z"]].assign(device=frame["who"])
    said = model.predict(frame[["x", "z"]], devices=frame["who"])
    assert loaded.predict(new).tolist() == said.tolist()
