"""Blend for counts and robust losses: mixed models of working rows, shares by the loss."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from persfl import Linear, PersonalizedRegressor
from persfl.devices import Devices
from persfl.errors import UnseenWarning
from persfl.evaluation.row_order import RowOrder
from persfl.methods import Blend
from persfl.methods.mixed.hidden_loss import HiddenLoss
from persfl.methods.mixed.hidden_rows import Hidden, HiddenRows
from persfl.methods.mixed.linear_rule import linear_blend
from persfl.methods.mixed.loss_home import LossHome
from persfl.methods.mixed.loss_offers import LossOffers
from persfl.methods.mixed.loss_rule import loss_blend
from persfl.methods.mixed.working_rows import LossSums
from persfl.runs import load_model, save_model
from persfl.types import Array

COUNTS = Linear("poisson", intercept=True)
ROBUST = [
    Linear("huber", intercept=True, delta=0.05),
    Linear("absolute", intercept=True),
]


def _rates(n: int, m: int, seed: int, *, kinds: bool) -> tuple[Array, Array, Array]:
    """Rows, logarithms of their rates, and whose they are."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n * m, 2))
    who = np.repeat(np.arange(n), m)
    slopes = np.array([[0.8, -0.6], [-0.8, 0.6]])[np.arange(n) % 2]
    if not kinds:
        slopes = np.repeat([[0.6, 0.2]], n, axis=0)
    level = 0.5 + (0.0 if kinds else 0.8) * rng.normal(size=n)
    return X, level[who] + (X * slopes[who]).sum(axis=1), who


def _deviance(y: Array, rate: Array) -> float:
    some = np.maximum(y, 1e-12)
    return float(2 * (y * np.log(some / rate) - y + rate).mean())


@pytest.mark.parametrize("kinds", [False, True])
def test_counts_are_closer_than_own_rows_and_one_model_for_all(kinds: bool) -> None:
    X, score, who = _rates(24, 16, 3, kinds=kinds)
    y = np.random.default_rng(4).poisson(np.exp(score)) + 0.0
    learn = np.arange(len(y)) % 2 == 0
    error = {}
    for method in (Blend(trees=False), "own", "pooled"):
        model = PersonalizedRegressor(COUNTS, method=method, holdout=0, random_state=0)
        model.fit(X[learn], y[learn], devices=who[learn])
        said = model.predict(X[~learn], devices=who[~learn])
        error[model.method_] = _deviance(np.exp(score[~learn]), said)
    assert error["blend"] < 0.4 * min(error["own"], error["pooled"])


def test_who_is_near_whom_is_found_from_counts() -> None:
    X, score, who = _rates(24, 16, 3, kinds=True)
    y = np.random.default_rng(4).poisson(np.exp(score)) + 0.0
    rows = Devices.grouped(X, y, who, range(24))
    found = loss_blend(rows, COUNTS, seed=0, trees=False)
    same = (np.arange(24)[:, None] - found.centres) % 2 == 0
    assert (found.posterior * same).sum(axis=1).min() > 0.9
    assert found.likeness.kinds


def test_a_huge_delta_is_squared_loss() -> None:
    X, score, who = _rates(12, 10, 0, kinds=False)
    y = score + 0.3 * np.random.default_rng(1).normal(size=len(score))
    rows = Devices.grouped(X, y, who, range(12))
    wide = Linear("huber", intercept=True, delta=1e6)
    found = loss_blend(rows, wide, seed=0, trees=False)
    plain = linear_blend(rows, level=True, seed=0, trees=False)
    np.testing.assert_allclose(found.models, plain.models, atol=0.04)
    np.testing.assert_allclose(found.shares, plain.shares, atol=0.12)


@pytest.mark.parametrize("learner", ROBUST, ids=["huber", "absolute"])
def test_ruined_rows_mislead_squared_loss_alone(learner: Linear) -> None:
    X, score, who = _rates(20, 10, 2, kinds=False)
    rng = np.random.default_rng(1)
    y = score + 0.2 * rng.normal(size=len(score))
    ruined = rng.uniform(size=len(y)) < 0.1
    y[ruined] += rng.choice([-1.0, 1.0], ruined.sum()) * rng.exponential(
        20.0, ruined.sum()
    )
    away = {}
    for each in (learner, Linear(intercept=True)):
        model = PersonalizedRegressor(each, method=Blend(trees=False), holdout=0)
        model.fit(X, y, devices=who)
        away[each.kind] = np.abs(model.predict(X, devices=who) - score).mean()
    assert away[learner.kind] < 0.35 * away["squared"]


@pytest.mark.parametrize("learner", [COUNTS, *ROBUST], ids=lambda each: each.kind)
def test_hidden_rows_change_nothing_of_what_is_fitted_without_them(
    learner: Linear,
) -> None:
    X, score, who = _rates(8, 6, 0, kinds=False)
    y = np.random.default_rng(1).poisson(np.exp(score)) + 0.0
    hidden = np.arange(len(y)) % 6 == 1
    models = []
    for other in (y, np.where(hidden, 1000.0, y)):
        rows = Devices.grouped(X, other, who, range(8))
        Z = np.column_stack([np.ones(len(y)), X])
        parts = HiddenRows(hidden + 0, [Hidden((0,), (1,))])
        home = LossHome(rows, Z, learner, parts)
        models += LossOffers.of(home.told, (8, 3), 2, learner, 0).fit().folds
    np.testing.assert_array_equal(*models)


@pytest.mark.parametrize(
    "y",
    [
        np.zeros(30),
        np.r_[np.zeros(24), np.full(6, 1e6)],
        np.r_[np.zeros(29), 1.0],
    ],
    ids=["no count", "one device counts millions", "one count"],
)
@pytest.mark.parametrize("intercept", [True, False])
def test_extreme_counts_have_finite_models(y: Array, intercept: bool) -> None:
    X = np.random.default_rng(0).normal(size=(30, 2))
    rows = Devices.grouped(X, y, np.arange(30) // 6, range(5))
    learner = Linear("poisson", intercept=intercept)
    found = loss_blend(rows, learner, seed=0)
    assert np.isfinite(found.models).all()
    if intercept and y[-1] > 1:
        level = found.models[:, 0]
        assert level[4] > 5 + level[:4].max()


def test_a_slope_of_zero_residuals_is_no_division_by_zero() -> None:
    score = np.array([1.0, 2.0, 3.0])
    for learner in ROBUST:
        rows = score.copy(), np.ones(3), np.array([0, 3])
        Z = np.ones((3, 1))
        for reach in (1e-3, 1.0):
            made = LossSums.of(learner, Z, score, *rows, reach)
            left = made.left(learner, reach)
            assert left.product.item() == left.label.item() == 0.0


def test_hidden_rows_of_one_date_count_once_as_far_as_they_say_the_same() -> None:
    rng = np.random.default_rng(2)
    day = np.repeat(np.arange(20), 15)
    y = rng.poisson(np.exp(1.0 + rng.normal(size=20)[day])) + 0.0
    row = np.arange(300)
    left = (y - 1.5)[:, None]
    one = np.ones(300)
    told = HiddenLoss(0 * row, row, 0 * row, one, one, left, COUNTS, y, -7.0)
    assert told.once_a_key(day, 0).weight.sum() < 60
    shuffled = rng.permutation(day)
    assert told.once_a_key(shuffled, 0).weight.sum() > 150


def test_blocks_are_hidden_together() -> None:
    X, score, who = _rates(6, 10, 0, kinds=False)
    y = np.random.default_rng(1).poisson(np.exp(score)) + 0.0
    rows = Devices.grouped(X, y, who, range(6))
    order = RowOrder(blocks=np.tile(np.arange(10), 6))
    found = loss_blend(rows, COUNTS, seed=0, order=order, trees=False)
    assert np.isfinite(found.models).all()
    assert found.shares.sum() == pytest.approx(1.0)


@pytest.fixture(scope="module")
def bent() -> tuple[PersonalizedRegressor, Array, Array, Array]:
    """Counts that no straight line tells, and a fit with trees."""
    X, _, who = _rates(10, 22, 0, kinds=False)
    score = 1.0 + 1.5 * (np.abs(X[:, 0]) < 0.7) + 0.3 * (who % 3)
    y = np.random.default_rng(1).poisson(np.exp(score)) + 0.0
    model = PersonalizedRegressor(COUNTS, holdout=0, random_state=0)
    return model.fit(X, y, devices=who), X, who, score


def test_trees_of_counts_multiply_rates(
    bent: tuple[PersonalizedRegressor, Array, Array, Array], tmp_path: Path
) -> None:
    model, X, who, score = bent
    said = model.predict(X, devices=who)
    assert np.abs(np.log(said) - score).mean() < 0.25
    again = load_model(save_model(model, tmp_path / "run"))
    np.testing.assert_array_equal(again.predict(X, devices=who), said)


def test_a_graph_of_counts_says_the_same(
    bent: tuple[PersonalizedRegressor, Array, Array, Array], tmp_path: Path
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    from persfl.exports import onnx_fleet

    model, X, who, _ = bent
    graph = onnx_fleet(model.fitted_)
    session = runtime.InferenceSession(graph.SerializeToString())
    table = {f"x{k}": X[:40, k] for k in range(2)}
    (got,) = session.run(None, {"device": who[:40], **table})
    np.testing.assert_allclose(got, model.predict(X[:40], devices=who[:40]), rtol=1e-5)


def test_a_newcomer_of_counts_adapts() -> None:
    X, score, who = _rates(20, 12, 5, kinds=False)
    y = np.random.default_rng(6).poisson(np.exp(score)) + 0.0
    new = who == int(np.argmax([score[who == i].mean() for i in range(20)]))
    model = PersonalizedRegressor(COUNTS, method=Blend(trees=False), holdout=0)
    model.fit(X[~new], y[~new], devices=who[~new])
    adapted = model.adapt(X[new][:6], y[new][:6])
    rest = X[new][6:]
    away = np.abs(np.log(adapted.predict(rest)) - score[new][6:]).mean()
    with pytest.warns(UnseenWarning):
        nobody = model.predict(rest, devices=["new"] * len(rest))
    assert away < 0.4 * np.abs(np.log(nobody) - score[new][6:]).mean()
