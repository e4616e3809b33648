"""Pooled ridge with device dummies: scikit-learn's numbers, and those of School and Heart."""

import numpy as np
import pytest
from published import published
from sklearn.linear_model import LogisticRegression, Ridge

from persfl import Linear, Tree
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.learners import MLP
from persfl.methods import Dummies, LocalTask
from persfl.methods.dummies import dummy_fits
from persfl.sources import clustered_regression


@pytest.fixture(scope="module")
def rows():
    return clustered_regression(n=6, clusters=2, rows=9, features=2, noise=0.3, seed=1)


def columns(rows, slopes):
    hot = np.eye(len(rows))[rows.owner]
    if not slopes:
        return np.column_stack([rows.X, hot])
    own = np.column_stack([rows.X, np.ones(len(rows.X))])
    times = hot[:, :, None] * own[:, None]
    return np.column_stack([rows.X, times.reshape(len(own), -1)])


@pytest.mark.parametrize("slopes", [False, True])
def test_it_is_the_ridge_of_scikit_learn_with_columns_for_devices(rows, slopes):
    models = dummy_fits(Linear(intercept=True), rows, slopes=slopes, ridge=2.0)
    made = columns(rows, slopes)
    want = Ridge(2.0).fit(made, rows.y).predict(made)
    learner = Linear(intercept=True)
    mine = [learner.predict(models[i], rows[i].X) for i in range(6)]
    np.testing.assert_allclose(np.concatenate(mine), want, atol=1e-9)


def test_classes_are_those_of_a_penalized_logistic_regression(rows):
    y = (rows.y > 0) + 0.0
    classes = Devices(rows.X, y, rows.weight, rows.start, rows.ids)
    learner = Linear("logistic", intercept=True)
    models = dummy_fits(learner, classes, slopes=True, ridge=0.5)
    made = columns(rows, slopes=True)
    want = LogisticRegression(C=1.0, tol=1e-10, max_iter=5000).fit(made, y)
    mine = [learner.predict(models[i], rows[i].X) for i in range(6)]
    chances = want.predict_proba(made)[:, 1]
    np.testing.assert_allclose(np.concatenate(mine), chances, atol=2e-3)


@pytest.mark.parametrize("kind", ["squared", "logistic"])
def test_devices_of_one_row_choose_their_ridge_on_each_other(kind):
    """Labels say nothing of any column: with rows hidden among themselves that shows."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(60, 8))
    y = (draw.random(60) < 0.5) + 0.0
    lone = Devices(X, y, np.ones(60), np.arange(61), range(60))
    learner = Linear(kind, intercept=True)
    models = dummy_fits(learner, lone, slopes=True)
    weak = dummy_fits(learner, lone, slopes=True, ridge=0.1)
    assert np.abs(models[:, :8]).max() < 0.5 * np.abs(weak[:, :8]).max()
    one = dummy_fits(learner, Devices.of([lone[0]], quiet=True))
    assert np.isfinite(one).all()


def test_a_device_without_rows_gets_what_is_common(rows):
    start = np.append(rows.start, rows.start[-1])
    more = Devices(rows.X, rows.y, rows.weight, start, range(7))
    models = dummy_fits(Linear(intercept=True), more, slopes=True, ridge=1.0)
    np.testing.assert_allclose(
        models[:6], dummy_fits(Linear(intercept=True), rows, slopes=True, ridge=1.0)
    )
    assert np.isfinite(models[6]).all()


def test_one_device_alone_is_a_ridge_regression(rows):
    one = Devices.of([rows[0]], quiet=True)
    models = Dummies(ridge=1.0).run(LocalTask(one, Linear(intercept=True))).models
    assert np.shape(models) == (1, 3)


def test_what_it_cannot_do_is_said_in_a_sentence(rows):
    with pytest.raises(InputError, match=r"dummies is for linear models. Got MLP"):
        Dummies().run(LocalTask(rows, MLP()))
    with pytest.raises(InputError, match=r"ridge must be greater than 0. Got 0"):
        Dummies(ridge=0).run(LocalTask(rows, Linear()))
    assert Dummies().needs().gradients > Tree().traits.gradients


def test_school_without_noise():
    """.0217 was measured by other code (own levels in shared units); at most .0226 is asked for."""
    table = published("school.csv")
    X = table.filter(regex=r"^x\d").to_numpy(float)
    y = (table.score.to_numpy() - 1) / 69
    owner = table.school.to_numpy()
    found = {}
    for slopes in (False, True):
        errors = []
        for k in range(5):
            learn = (table[f"split{k}"] == "train").to_numpy()
            spread = X[learn].std(axis=0)
            Z = (X - X[learn].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
            rows = Devices.grouped(Z[learn], y[learn], owner[learn], range(139))
            models = dummy_fits(Linear(intercept=True), rows, slopes=slopes)[owner]
            said = (Z * models[:, :-1]).sum(axis=1) + models[:, -1]
            errors.append(np.mean((said - y)[~learn] ** 2))
        found[slopes] = np.mean(errors)
    assert found[False] == pytest.approx(0.0217, abs=0.0002)
    assert found[True] < 0.0217


def test_heart_disease_by_the_published_protocol():
    """.7353 is the best that is published; .837 was measured by other code in shared units.

    One of 16 rows of a hospital moves the mean by .016.
    """
    table = published("heart.csv")
    X = table.drop(columns=["hospital", "split", "disease", "num"]).to_numpy(float)
    y = table.disease.to_numpy(float)
    owner = np.unique(table.hospital, return_inverse=True)[1]
    learn = (table.split == "train").to_numpy()
    Z = (X - X[learn].mean(axis=0)) / X[learn].std(axis=0)
    rows = Devices.grouped(Z[learn], y[learn], owner[learn], range(4))
    learner = Linear("logistic", intercept=True)
    models = dummy_fits(learner, rows)
    right = np.zeros(4)
    for i in range(4):
        mine = (owner == i) & ~learn
        right[i] = np.mean(learner.labels(models[i], Z[mine]) == y[mine])
    assert right.mean() == pytest.approx(0.837, abs=0.02)
    assert right.mean() > 0.7353
