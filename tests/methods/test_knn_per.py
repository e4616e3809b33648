"""A common model, and the nearest of own rows."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("torch")

from torch import nn

from persfl import Linear, PersonalizedClassifier
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.exports.fleet_parts import fleet_parts_of
from persfl.learners import Network
from persfl.learners.near_rows import NearRows, called
from persfl.learners.network_body import before_last
from persfl.learners.responses import respond_each
from persfl.learners.storage.family_table import models_from, models_to
from persfl.methods import FedAvg, KNNPer, LocalTask
from persfl.runs import load_model, save_model
from persfl.testing import check_method
from persfl.types import Data


def two_kinds(n=8, rows=30, seed=0):
    """Half the devices call high what the others call low."""
    draws = np.random.default_rng(seed)
    found = []
    for i in range(n):
        X = draws.normal(size=(rows, 2))
        y = (X[:, 0] > 0) == (i % 2 == 0)
        found.append(Data(X, y.astype(float)))
    return Devices.of(found)


def body():
    return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))


def net():
    return Network(body, loss="cross_entropy")


def test_contract():
    check_method(KNNPer(k=2, rounds=2))


def test_a_common_network_that_cannot_serve_both_is_corrected_by_own_rows():
    learn, judge = two_kinds(n=6), two_kinds(n=6, seed=1)
    task = LocalTask(learn, net(), seed=0, classes=2)
    wrong = []
    for method in (FedAvg(rounds=5), KNNPer(rounds=5)):
        models = method.run(task).models
        said = respond_each(net(), models, judge.X, judge.owner, 2).argmax(axis=1)
        wrong.append(np.mean(said != judge.y))
    assert wrong[1] < 0.2 < 0.4 < wrong[0]


def test_common_models_of_folds_are_trained_and_computed_as_the_last_one(monkeypatch):
    seen = []
    run = FedAvg.run

    def watched(self, task, **more):
        seen.append((self.local, self.rounds, task.compute))
        return run(self, task, **more)

    monkeypatch.setattr(FedAvg, "run", watched)
    task = LocalTask(two_kinds(n=4, rows=10), net(), seed=0, compute="cpu", classes=2)
    KNNPer(rounds=2, local=3).run(task)
    assert seen == [(3, 2, "cpu")] * 5


def test_where_all_agree_own_rows_get_little_to_say():
    draws = np.random.default_rng(0)
    each = draws.normal(size=(6, 30, 2))
    rows = Devices.of([Data(X, X @ [1.0, -2.0]) for X in each])
    models = KNNPer(rounds=60).run(LocalTask(rows, Linear(), seed=0)).models
    assert models.share.max() <= 0.1


def test_rows_are_near_by_what_they_are_before_the_last_layer():
    learner = net()
    X = np.random.default_rng(0).normal(size=(5, 2))
    model = learner.init(Data(X, np.zeros(5)), None)
    first = learner.named(model)
    want = np.tanh(X @ first["0.weight"].T + first["0.bias"])
    np.testing.assert_allclose(before_last(learner, model, X), want, atol=1e-6)
    one = Network(lambda: nn.Linear(2, 1), loss="squared")
    np.testing.assert_array_equal(
        before_last(one, one.init(Data(X, X[:, 0]), None), X), X
    )


def test_rows_of_weight_0_count_where_there_is_no_other():
    seen, label = np.array([[0.0], [0.1]]), np.array([1.0, 5.0])
    how = {"k": 2, "scale": 1.0, "classes": 0}
    some = called(np.zeros((1, 1)), seen, label, np.array([0.0, 1.0]), **how)
    assert some.tolist() == [5.0]
    none = called(np.zeros((1, 1)), seen, label, np.zeros(2), **how)
    assert 1.0 < none[0] < 5.0


@pytest.mark.parametrize("estimator", [None, body])
def test_a_run_folder_keeps_it_and_nothing_else_may(tmp_path, estimator):
    rows = two_kinds(n=4, rows=12)
    table = pd.DataFrame(rows.X, columns=["a", "b"])
    made = PersonalizedClassifier(
        None if estimator is None else estimator(), method=KNNPer(rounds=3), holdout=0
    )
    made.fit(table, rows.y, devices=rows.owner)
    if estimator is not None:
        assert isinstance(made.fitted_.models, NearRows)
    path = save_model(made, tmp_path / "run")
    again = load_model(path) if estimator is None else load_model(path, module=body())
    np.testing.assert_array_equal(
        again.predict_proba(table, devices=rows.owner),
        made.predict_proba(table, devices=rows.owner),
    )
    with pytest.raises(InputError, match="hold rows of their devices"):
        fleet_parts_of(made.fitted_)


def some_models():
    rows = two_kinds(n=3, rows=8)
    task = LocalTask(rows, Linear("logistic"), seed=0, classes=2)
    return models_to(KNNPer(rounds=2).run(task).models)


@pytest.mark.parametrize(
    "change",
    [
        {"near_start": np.array([0, 8, 16, 25])},
        {"near_start": np.array([0, 16, 8, 24])},
        {"near_share": np.full(3, 1.5)},
        {"near_scale": np.zeros(3)},
        {"near_seen": np.full((24, 2), np.nan)},
        {"near_label": np.full(24, 7.0)},
        {"near_k": np.array(0)},
        {"near_common": np.zeros(5)},
        {"near_more": np.zeros(1)},
    ],
)
def test_arrays_of_others_are_looked_at(change):
    with pytest.raises(InputError, match="damaged"):
        models_from(some_models() | change, features=2, classes=2)


def test_rows_of_another_width_are_refused():
    models = models_from(some_models() | {"near_seen": np.zeros((24, 3))})
    with pytest.raises(InputError, match="must have 2 numbers. Got 3"):
        models.check(Linear("logistic"), 2)


def test_bad_settings():
    task = LocalTask(two_kinds(n=2, rows=4), Linear(), seed=0)
    with pytest.raises(InputError, match="k must be"):
        KNNPer(k=0).run(task)


def test_a_device_with_one_row_has_the_common_model():
    rows = Devices.of(
        [Data(np.ones((1, 1)), np.ones(1)), Data(np.eye(6)[:, :1], np.arange(6.0))],
        quiet=True,
    )
    models = KNNPer(rounds=3).run(LocalTask(rows, Linear(), seed=0)).models
    assert models.share[0] == 0
    said = respond_each(Linear(), models, rows.X, rows.owner)
    assert np.isfinite(said).all()
