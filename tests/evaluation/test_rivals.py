"""Rivals: own rows alone, one model for all, and that one fine-tuned."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge, RidgeCV

from persfl import Devices, Linear
from persfl.evaluation.rivals import pooled_fit
from persfl.learners.shrunk import STRENGTHS, shrunk
from persfl.sources import clustered_regression


@pytest.fixture
def devices():
    return clustered_regression(
        n=12, clusters=2, rows=10, features=4, noise=0.5, seed=0
    )


def test_own_fits_are_ridge_with_the_strength_of_least_leave_one_out_error(devices):
    models = shrunk(Linear(intercept=True), devices)
    for i in range(len(devices)):
        known = RidgeCV(alphas=STRENGTHS).fit(devices[i].X, devices[i].y)
        np.testing.assert_allclose(
            models[i], [*known.coef_, known.intercept_], rtol=1e-8
        )


def test_a_weight_counts_copies(devices):
    X, y = devices[0].X, devices[0].y
    weight = np.array([1.0, 2, 3, 1, 1, 1, 2, 1, 1, 1])
    twice = np.repeat(np.arange(10), weight.astype(int))
    for learner in (Linear(intercept=True), Linear("logistic", intercept=True)):
        label = y if learner.kind == "squared" else (y > 0) + 0.0
        weighted = shrunk(learner, Devices.of([(X, label, weight)]))
        copied = shrunk(learner, Devices.of([(X[twice], label[twice])]))
        np.testing.assert_allclose(
            weighted, copied, atol=1e-3 if learner.kind == "logistic" else 1e-9
        )


@pytest.mark.parametrize(
    "kind", ["squared", "logistic", "multinomial", "huber", "poisson"]
)
def test_fine_tuning_stays_near_its_anchor_and_lowers_the_loss(kind):
    generator = np.random.default_rng(1)
    X = generator.normal(size=(40, 3))
    score = X @ [1.0, -1.0, 0.5]
    y = {
        "squared": score,
        "huber": score,
        "logistic": (score > 0) + 0.0,
        "multinomial": np.digitize(score, [-1, 1]) + 0.0,
        "poisson": generator.poisson(np.exp(score)) + 0.0,
    }[kind]
    learner = Linear(kind, intercept=True, classes=3 if kind == "multinomial" else None)
    devices = Devices.of([(X[:20], y[:20]), (X[20:], y[20:])])
    anchor = pooled_fit(learner, devices)
    tuned = shrunk(learner, devices, anchor)
    for i in range(2):
        assert (
            learner.loss(tuned[i], devices[i])
            <= learner.loss(anchor, devices[i]) + 1e-4
        )
    assert np.abs(tuned - anchor).max() < 5


def test_pooled_fit_is_the_fit_to_all_rows(devices):
    known = Ridge(alpha=1e-9).fit(devices.X, devices.y)
    np.testing.assert_allclose(
        pooled_fit(Linear(intercept=True), devices),
        [*known.coef_, known.intercept_],
        rtol=1e-5,
    )
