"""Blend for classes: models pulled toward a centre, neighbours, the log pool, and the rule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import check_grad, minimize
from sklearn.ensemble import HistGradientBoostingClassifier

from persfl import PersonalizedClassifier
from persfl.devices import Devices
from persfl.errors import InputError, UnseenWarning
from persfl.evaluation.row_order import RowOrder
from persfl.learners.linear import Linear
from persfl.learners.shared_trees import BoostedModels
from persfl.learners.storage.family_table import models_from, models_to
from persfl.methods.mixed.class_centre import fleet_centre
from persfl.methods.mixed.class_fits import Axes, chances, log_chances, pulled
from persfl.methods.mixed.class_likeness import judging
from persfl.methods.mixed.class_near import near_centres
from persfl.methods.mixed.class_newton import bent, prior_variance
from persfl.methods.mixed.class_offers import ClassOffers
from persfl.methods.mixed.class_rows import ClassRows, all_rows, device_rows, with_level
from persfl.methods.mixed.class_rule import ClassRule, class_rule
from persfl.methods.mixed.class_together import Company, likely_company, together
from persfl.methods.mixed.class_trees import CALMER, GrownClasses, best_stage
from persfl.methods.mixed.log_pool import EVEN, pool_shares, pool_sums
from persfl.runs import load_model, save_model
from persfl.types import Array, IntArray

TWO = Linear("logistic", intercept=True)


def many(classes: int) -> Linear:
    return Linear("multinomial", intercept=True, classes=classes)


def some_rows(n: int, m: int, d: int, classes: int, seed: int = 0) -> ClassRows:
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, m, d))
    Y = np.eye(classes)[rng.integers(0, classes, (n, m))]
    weight = rng.uniform(0.5, 2.0, (2, n, m))
    weight[1, :, : m // 4] = 0.0
    return ClassRows(np.arange(n), Z, Y, weight)


def fleet(
    W: Array, rows: int, seed: int = 0, level: float = 0.0
) -> tuple[Devices, Array, IntArray, IntArray]:
    """Devices with true slopes W (n, d, classes), and new rows."""
    rng = np.random.default_rng(seed)
    n, d, _ = W.shape
    held = 40
    owner = np.repeat(np.arange(n), rows + held)
    X = rng.normal(size=(len(owner), d))
    score = np.einsum("rd,rdk->rk", X, W[owner])
    score[:, -1] += level
    y = (chances(score).cumsum(axis=1) > rng.random((len(X), 1))).argmax(axis=1)
    new = np.tile(np.arange(rows + held) >= rows, n)
    known = Devices.grouped(X[~new], y[~new].astype(float), owner[~new], range(n))
    return known, X[new], y[new], owner[new]


def log_loss(found: ClassRule, X: Array, y: IntArray, owner: IntArray) -> float:
    p = found.chances(X, owner)
    return float(-np.log(p[np.arange(len(y)), y]).mean())


@pytest.mark.parametrize("shape", [(3, 12, 5, 2), (2, 40, 6, 3), (2, 8, 20, 4)])
def test_pulled_models_are_the_best_there_are(shape: tuple[int, int, int, int]) -> None:
    rows = some_rows(*shape)
    d, classes = shape[2:]
    variance = np.linspace(0.2, 1.0, d)
    centre = np.random.default_rng(1).normal(size=(2, shape[0], d, classes))
    found = pulled(rows, Axes.of(rows, variance), centre, 2.0, steps=200)
    for copy in range(2):

        def loss(flat: Array, copy: int = copy) -> float:
            W = flat.reshape(d, classes)
            log = (log_chances(rows.Z[0] @ W) * rows.Y[0]).sum(axis=1)
            away = (W - centre[copy, 0]) ** 2 / (2.0 * 2.0 * variance[:, None])
            return float(away.sum() - rows.weight[copy, 0] @ log)

        best = minimize(loss, centre[copy, 0].ravel(), options={"gtol": 1e-7})
        assert loss(found[copy, 0].ravel()) <= best.fun + 1e-6
        np.testing.assert_allclose(found[copy, 0].ravel(), best.x, atol=1e-3)


def test_a_variance_of_zero_keeps_the_centre() -> None:
    rows = some_rows(3, 9, 4, 3)
    centre = np.ones((2, 3, 4, 3))
    found = pulled(rows, Axes.of(rows, np.array([0.0, 0.0, 0.0, 1.0])), centre)
    np.testing.assert_array_equal(found[:, :, :3], centre[:, :, :3])
    assert np.abs(found[:, :, 3] - 1.0).min() > 1e-6


def test_the_fleets_model_knows_how_large_its_slopes_are() -> None:
    sizes = []
    for size in (0.1, 1.5):
        W = size * np.random.default_rng(0).normal(size=(6, 3))
        rows, *_ = fleet(np.repeat(W[None], 20, axis=0), 40)
        shown = np.ones((1, len(rows.y)))
        whole = all_rows(rows, shown, classes=3, level=True)
        sizes.append(fleet_centre(whole, level=True)[1])
    # scores have no level of their own: a third of their variance cannot be seen
    assert sizes[0] < 0.1
    assert 0.5 < sizes[1] < 4.0


def test_padded_rows_are_the_rows_of_each_device() -> None:
    rng = np.random.default_rng(0)
    owner = rng.choice(5, 60, p=[0.6, 0.2, 0.1, 0.05, 0.05])
    y = rng.integers(0, 3, 60).astype(float)
    rows = Devices.grouped(rng.normal(size=(60, 2)), y, owner, range(5))
    whole = all_rows(rows, np.ones((1, 60)), classes=3, level=True)
    parts = device_rows(rows, whole)
    assert len(parts) > 1
    assert sorted(np.concatenate([part.who for part in parts])) == list(range(5))
    for part in parts:
        for k, who in enumerate(part.who):
            real = part.weight[0, k] > 0
            np.testing.assert_array_equal(part.Z[k, real, :2], rows[who].X)
            np.testing.assert_array_equal(part.Y[k, real].argmax(axis=1), rows[who].y)


def test_near_finds_who_is_of_ones_kind() -> None:
    rng = np.random.default_rng(0)
    kinds = 1.5 * rng.normal(size=(2, 4, 3))
    kind = np.arange(16) % 2
    rows, *_ = fleet(kinds[kind], 25)
    shown = np.ones((1, len(rows.y)))
    whole = all_rows(rows, shown, classes=3, level=False)
    parts = device_rows(rows, whole)
    axes = [Axes.of(part, np.ones(4)) for part in parts]
    start = np.empty((1, 16, 4, 3))
    for part, axis in zip(parts, axes, strict=True):
        centre = np.zeros((1, len(part.who), 4, 3))
        start[:, part.who] = pulled(part, axis, centre, 3.0)
    found = near_centres(parts, axes, start, 0.3, np.arange(16))
    same = (kind[:, None] == kind) * found.posterior
    np.testing.assert_allclose(found.posterior.sum(axis=1), 1.0)
    assert np.diag(found.posterior).max() == 0.0
    assert np.median(same.sum(axis=1)) > 0.99
    assert same.sum(axis=1).mean() > 0.9


def test_rows_fitted_together_count_for_what_they_weigh(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a device would be fitted that had all of them; hidden ones have no say."""
    rows, *_ = fleet(np.random.default_rng(0).normal(size=(4, 3, 2)), 9)
    shown = np.ones((2, len(rows.y)))
    shown[1, ::3] = 0.0
    whole = all_rows(rows, shown, classes=2, level=True)
    who = np.array([[0, 2, 1], [1, 0, 3], [2, 3, 0], [3, 1, 2]])
    company = Company(who, np.tile([1.0, 0.6, 0.0], (4, 1)))
    centre, variance = np.full((4, 2), 0.1), np.ones(4)
    found = together(rows, whole, 1, company, centre, variance)
    for i, other, _ in who.tolist():
        weight = np.select([rows.owner == i, rows.owner == other], [1.0, 0.6]) * shown
        alone = all_rows(rows, weight[1:], classes=2, level=True)
        axes = Axes.of(alone, variance)
        expected = pulled(alone, axes, centre[None, None], steps=300)[0, 0]
        np.testing.assert_allclose(found[i], expected, atol=1e-4)
    again = together(rows, whole, 1, company, centre, variance, begin=found)
    np.testing.assert_allclose(again, found, atol=1e-4)
    far = np.random.default_rng(1).normal(size=found.shape)
    again = together(rows, whole, 1, company, centre, variance, begin=far)
    np.testing.assert_allclose(again, found, atol=1e-3)
    monkeypatch.setattr("persfl.methods.mixed.class_together.STEPS", 0)
    again = together(rows, whole, 1, company, centre, variance, begin=far)
    np.testing.assert_allclose(again, far)


def test_equally_likely_centres_count_in_full() -> None:
    share = np.array([[4.0, 4.0, 4.0, 4.0, 1.0], [1.0, 0.0, 0.0, 0.0, 0.0]])
    share /= share.sum(axis=1, keepdims=True)
    company = likely_company(np.array([[1, 2, 3, 4, 5], [0, 2, 3, 4, 5]]), share)
    expected = np.array([[1, 1, 1, 1, 1, 4.25 / 16.25], [1, 1, 0, 0, 0, 0]])
    np.testing.assert_allclose(company.weight, expected)
    own = company.own(np.array([10, 10, 10, 10, 10, 10]))
    np.testing.assert_allclose(own, 1.0 / company.weight.sum(axis=1))


def test_a_kind_knows_more_than_the_mean_of_its_models() -> None:
    """Few rows of many columns: what each device leaves open, all of its kind know."""
    kind = np.arange(24) % 3
    W = 2.0 * np.random.default_rng(0).normal(size=(3, 20, 3))[kind]
    rows, X, y, owner = fleet(W, 20)
    whole = all_rows(rows, np.ones((1, len(rows.y))), classes=3, level=False)
    parts = device_rows(rows, whole)
    offers = ClassOffers(rows, whole, parts, False, np.arange(24))
    lost = {}
    for name, models, own in offers.each():
        log = log_chances(np.einsum("rd,rdk->rk", X, models[0, owner]))
        lost[name] = -float(log[np.arange(len(y)), y].mean())
        assert 0.0 <= own.min() <= own.max() <= 1.0
    assert lost["near, together"] < 0.95 * lost["near"]
    by_rows = ClassOffers(rows, whole, parts, False, np.arange(24), alike=False)
    assert not any("together" in offer.name for offer in by_rows.each())


def test_a_log_pool_of_linear_offers_is_one_linear_model() -> None:
    rng = np.random.default_rng(0)
    W = rng.normal(size=(3, 4, 5))
    Z = rng.normal(size=(20, 4))
    share = np.array([0.5, 0.3, 0.2])
    log = log_chances(np.einsum("rd,odk->rok", Z, W))
    pool = chances(np.einsum("rok,o->rk", log, share))
    np.testing.assert_allclose(pool, chances(Z @ np.einsum("o,odk->dk", share, W)))


def test_shares_of_a_pool_are_the_best_there_are() -> None:
    rng = np.random.default_rng(0)
    log = log_chances(rng.normal(size=(200, 3, 4)))
    label = np.array([rng.choice(4, p=np.exp(row[0])) for row in log])
    weight = rng.uniform(0.5, 1.5, 200)
    belief = np.array([0.5, 0.2, 0.3])
    share = pool_shares(log, label, weight, belief)

    def loss(free: Array) -> float:
        a = chances(np.append(free, 0.0))
        pool = log_chances(np.einsum("rok,o->rk", log, a))
        value = -weight @ pool[np.arange(200), label]
        return float(value - EVEN * belief @ np.log(a))

    best = minimize(loss, np.zeros(2))
    np.testing.assert_allclose(share, chances(np.append(best.x, 0.0)), atol=1e-3)
    assert share[0] > 0.5
    nothing = pool_shares(log, label, np.zeros(200), belief)
    np.testing.assert_allclose(nothing, belief)


def test_the_sums_of_a_pool_are_its_derivatives() -> None:
    rng = np.random.default_rng(0)
    log = log_chances(rng.normal(size=(50, 3, 4)))
    label = rng.integers(0, 4, 50)
    weight = rng.uniform(size=50)

    def value(share: Array) -> float:
        pooled = log_chances(np.einsum("roc,o->rc", log, share))
        return float(weight @ pooled[np.arange(50), label])

    def slope(share: Array) -> Array:
        return pool_sums(log, label, weight, share).slope

    at = rng.uniform(size=3)
    assert check_grad(value, slope, at) < 1e-5
    curve = pool_sums(log, label, weight, at).curve
    for k, way in enumerate(1e-6 * np.eye(3)):
        bent = (slope(at - way) - slope(at + way)) / 2e-6
        np.testing.assert_allclose(curve[k], bent, atol=1e-5)


def test_the_shares_of_a_pool_are_the_best_there_are() -> None:
    rng = np.random.default_rng(1)
    label = rng.integers(0, 3, 80)
    good = np.eye(3)[label][:, None] * np.array([2.0, 1.0, 0.0, -1.0])[:, None]
    log = log_chances(rng.normal(size=(80, 4, 3)) + good)
    belief = np.array([0.1, 0.2, 0.3, 0.4])

    def loss(free: Array) -> float:
        share = chances(free)
        pooled = log_chances(np.einsum("roc,o->rc", log, share))
        told = float(pooled[np.arange(80), label].sum())
        return -told - EVEN * float(belief @ np.log(share))

    found = pool_shares(log, label, np.ones(80), belief)
    want = minimize(loss, np.log(belief), tol=1e-10).x
    np.testing.assert_allclose(found, chances(want), atol=1e-5)


@pytest.mark.parametrize("level", [False, True])
def test_newtons_steps_end_where_the_fleets_model_is_best(level: bool) -> None:
    rows = some_rows(1, 60, 4, 3)
    if level:
        rows.Z[..., -1] = 1.0
    models, size = fleet_centre(rows, level=level)
    variance = prior_variance(4, size, level)
    told = bent(rows, models)
    uphill = told.slope - (models / variance[:, None]).reshape(2, -1)
    assert np.abs(uphill).max() < 1e-6
    exact = pulled(rows, Axes.of(rows, variance), np.zeros((2, 1, 4, 3)), steps=3000)
    np.testing.assert_allclose(models, exact[:, 0], atol=1e-6)


def test_bends_are_derivatives() -> None:
    rows = some_rows(2, 9, 2, 3)
    at = np.random.default_rng(3).normal(size=(1, 2, 3))

    def value(flat: Array) -> float:
        log = log_chances(rows.Z @ flat.reshape(2, 3))
        return float(np.einsum("nm,nmk,nmk->", rows.weight[0], rows.Y, log))

    def slope(flat: Array) -> Array:
        return bent(rows, flat.reshape(1, 2, 3)).slope[0]

    assert check_grad(value, slope, at.ravel()) < 1e-4
    curve = bent(rows, at).curve[0]
    for k, way in enumerate(1e-6 * np.eye(6)):
        moved = (slope(at.ravel() - way) - slope(at.ravel() + way)) / 2e-6
        np.testing.assert_allclose(curve[k], moved, atol=1e-4)


def test_a_step_that_is_too_long_is_halved() -> None:
    """Rows that are told apart without fail: Newton's first steps from far away overshoot."""
    X = np.linspace(-1.0, 1.0, 40)[:, None] * 30.0
    Y = np.eye(2)[(X[:, 0] > 0).astype(int)][None]
    rows = ClassRows(np.zeros(1, dtype=np.int64), X[None], Y, np.ones((1, 1, 40)))
    models, _ = fleet_centre(rows, level=False)
    assert np.isfinite(models).all()
    assert ((X @ models[0]).argmax(axis=1) == Y[0].argmax(axis=1)).all()


@pytest.mark.parametrize("classes", [2, 3])
def test_trees_say_what_scikit_learn_says(classes: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    owner = rng.integers(0, 5, 300)
    y = ((X[:, 0] > 0) * 1 + (X[:, 1] > 0) * (classes - 2) * 1).astype(float)
    rows = Devices.grouped(X, y, owner, range(6))
    found = GrownClasses(rows, np.arange(300), classes, 20).trees()
    grower = HistGradientBoostingClassifier(
        max_iter=20, early_stopping=False, random_state=0, categorical_features=[0]
    )
    wide = np.column_stack([rows.owner, rows.X])
    grower.fit(wide, rows.y)
    log = found.log_chances(rows.X, rows.owner)
    np.testing.assert_allclose(np.exp(log), grower.predict_proba(wide), atol=1e-9)
    stranger = found.log_chances(rows.X[:4], np.full(4, -1))
    wide[:4, 0] = np.nan
    expected = grower.predict_proba(wide[:4])
    np.testing.assert_allclose(np.exp(stranger), expected, atol=1e-9)


def test_trees_that_are_not_told_the_device_are_offered_beside() -> None:
    """The bend is everybody's, and devices have too few rows to be worth a split."""
    draw = np.random.default_rng(0)
    owner = np.repeat(np.arange(40), 10)
    X = draw.normal(size=(400, 3))
    y = (np.abs(X[:, 0]) + 0.3 * draw.normal(size=400) > 0.7).astype(float)
    rows = Devices.grouped(X, y, owner, range(40))
    found = class_rule(rows, TWO, classes=2)
    assert found.names[-1] == "trees without the device"
    assert found.shares[-1] > max(found.shares[-2], 0.3)
    assert len(found.shared_trees) == len(found.trees)
    strange = found.trees[-1].log_chances(X, np.full(400, -1))
    np.testing.assert_array_equal(found.trees[-1].log_chances(X, owner), strange)
    right = np.mean(found.chances(X, owner).argmax(axis=1) == y)
    assert right > 0.9


def test_kinds_are_found_and_same_seed_same_result() -> None:
    rng = np.random.default_rng(0)
    kinds = 1.5 * rng.normal(size=(2, 4, 2))
    kinds[1] = -kinds[0]
    rows, X, y, owner = fleet(kinds[np.arange(16) % 2], 12)
    found = class_rule(rows, TWO, classes=2, seed=3)
    again = class_rule(rows, TWO, classes=2, seed=3)
    np.testing.assert_array_equal(found.models, again.models)
    np.testing.assert_array_equal(found.shares, again.shares)
    assert found.models.shape == (16, 5)
    pooled = found.centre
    one = chances(np.outer(with_level(X, True) @ pooled, [0.0, 1.0]))
    fleets = float(-np.log(one[np.arange(len(y)), y]).mean())
    assert log_loss(found, X, y, owner) < 0.8 * fleets


def test_two_classes_by_either_learner() -> None:
    rows, X, _, owner = fleet(np.random.default_rng(0).normal(size=(8, 3, 2)), 12)
    two = class_rule(rows, TWO, classes=2)
    both = class_rule(rows, many(2), classes=2)
    expected = both.chances(X, owner)
    np.testing.assert_allclose(two.chances(X, owner), expected, atol=1e-9)
    assert both.models.shape == (8, 8)


def test_models_are_what_the_learner_predicts_with() -> None:
    rows, X, _, owner = fleet(np.random.default_rng(0).normal(size=(5, 3, 3)), 10)
    found = class_rule(rows, many(3), classes=3, trees=False)
    said = many(3).predict(found.models[2], X[owner == 2])
    np.testing.assert_allclose(said, found.chances(X, owner)[owner == 2])


def test_a_class_that_a_device_never_saw_keeps_a_chance() -> None:
    W = np.repeat(np.random.default_rng(0).normal(size=(1, 3, 3)), 12, axis=0)
    rows, X, y, owner = fleet(W, 20, level=-1.0)
    keep = (rows.y != 2) | (rows.owner >= 4)
    some = Devices.grouped(rows.X[keep], rows.y[keep], rows.owner[keep], range(12))
    found = class_rule(some, many(3), classes=3)
    p = found.chances(X, owner)
    unseen = (y == 2) & (owner < 4)
    usual = (y == 2) & (owner >= 4)
    assert unseen.sum() > 10
    assert p[unseen, 2].mean() > 0.3 * p[usual, 2].mean()
    assert p[unseen, 2].min() > 1e-4


def test_a_class_that_nobody_saw_is_possible_but_unlikely() -> None:
    rows, X, _, owner = fleet(np.random.default_rng(0).normal(size=(6, 3, 3)), 40)
    found = class_rule(rows, many(4), classes=4)
    p = found.chances(X, owner)
    assert np.isfinite(p).all()
    assert p[:, 3].max() < 0.1
    assert p[:, 3].min() > 0.0


def test_rows_of_each_class_by_design_do_not_forbid_personal_models() -> None:
    """One row of each class at each device: hidden, its class looks unseen; new rows never are."""
    rng = np.random.default_rng(0)
    n, classes = 30, 6
    place = 3.0 * rng.normal(size=(classes, 3)) + rng.normal(size=(n, 1, 3))
    owner = np.repeat(np.arange(n), classes)
    y = np.tile(np.arange(classes), n)
    X = place[owner, y] + 0.3 * rng.normal(size=(len(y), 3))
    new = place[owner, y] + 0.3 * rng.normal(size=(len(y), 3))
    rows = Devices.grouped(X, y.astype(float), owner, range(n))
    found = class_rule(rows, many(classes), classes=classes, trees=False)
    W = found.centre.reshape(classes, -1)
    pooled = (with_level(new, True) @ W.T).argmax(axis=1) != y
    personal = found.chances(new, owner).argmax(axis=1) != y
    assert personal.mean() < 0.7 * pooled.mean()


@pytest.mark.parametrize("labels", [[0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 1.0, 2.0]])
def test_one_device_with_hardly_any_rows(labels: list[float]) -> None:
    X = np.arange(2.0 * len(labels)).reshape(-1, 2)
    rows = Devices.grouped(X, np.array(labels), np.zeros(len(labels), dtype=int), ["a"])
    found = class_rule(rows, many(3), classes=3)
    assert np.isfinite(found.models).all()
    p = found.chances(X, np.zeros(len(labels), dtype=int))
    np.testing.assert_allclose(p.sum(axis=1), 1.0)


def test_devices_of_one_and_two_rows_no_features_no_level() -> None:
    rng = np.random.default_rng(0)
    owner = np.array([0, 1, 1, 2, 2, 2, 3])
    y = np.array([0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0])
    for wide in (0, 2):
        X = rng.normal(size=(7, wide))
        rows = Devices.grouped(X, y, owner, range(4))
        assert np.isfinite(class_rule(rows, TWO, classes=2).models).all()
    plain = Linear("logistic")
    assert class_rule(rows, plain, classes=2).models.shape == (4, 2)


@pytest.mark.parametrize(
    "how", [RowOrder(ordered=True), RowOrder(blocks=np.arange(80) % 10)]
)
def test_other_ways_to_hide_rows(how: RowOrder) -> None:
    rows, *_ = fleet(np.random.default_rng(0).normal(size=(8, 3, 2)), 10)
    found = class_rule(rows, TWO, classes=2, order=how)
    assert np.isfinite(found.models).all()
    assert round(float(found.shares.sum()), 9) == 1.0


@pytest.mark.parametrize("rows", [3, 4])
def test_many_devices_with_fewer_rows_than_parts_in_order(rows: int) -> None:
    """Then a fold hides nobody, and there are rows enough for trees."""
    W = np.random.default_rng(0).normal(size=(40, 2, 3))
    known, *_ = fleet(W, rows)
    found = class_rule(known, many(3), classes=3, order=RowOrder(ordered=True))
    assert np.isfinite(found.models).all()


def test_rows_that_weigh_nothing_are_not_there() -> None:
    rows, *_ = fleet(np.random.default_rng(0).normal(size=(6, 3, 2)), 10)
    wrong = 1.0 - rows.y
    twice = Devices.grouped(
        np.concatenate([rows.X, rows.X]),
        np.concatenate([rows.y, wrong]),
        np.concatenate([rows.owner, rows.owner]),
        range(6),
        weight=np.repeat([1.0, 0.0], len(rows.y)),
    )
    whole = class_rule(twice, TWO, classes=2, trees=False)
    expected = class_rule(rows, TWO, classes=2, trees=False)
    np.testing.assert_allclose(whole.centre, expected.centre, atol=1e-9)


def test_what_models_are_made_of() -> None:
    """Devices of one kind lean on the fleet, those of two kinds on neighbours."""
    rng = np.random.default_rng(0)
    one = np.repeat(1.5 * rng.normal(size=(1, 4, 2)), 12, axis=0)
    kinds = np.where((np.arange(12) % 2 == 0)[:, None, None], one, -one)
    parts = []
    for W in (one, kinds):
        rows, *_ = fleet(W, 12)
        found = class_rule(rows, TWO, classes=2, trees=False)
        np.testing.assert_allclose(found.made_of.sum(axis=1), 1.0)
        assert found.made_of.min() >= 0.0
        parts.append(found.made_of.mean(axis=0))
    same, two = parts
    assert same[1] > 0.4
    assert same[1] > two[1] + 0.1
    assert two[2] > same[2] + 0.1


@pytest.mark.parametrize("names", [["no", "yes"], ["a", "b", "c"]])
def test_a_classifier_with_trees_is_kept_and_read(
    names: list[str], tmp_path: Path
) -> None:
    draw = np.random.default_rng(0)
    owner = np.repeat(np.arange(12), 25)
    X = draw.normal(size=(300, 2))
    bent = np.abs(X[:, 0]) + 0.2 * draw.normal(size=300)
    cuts = np.quantile(bent, np.linspace(0, 1, len(names) + 1)[1:-1])
    y = np.array(names)[np.digitize(bent, cuts)]
    model = PersonalizedClassifier(holdout=0, random_state=0).fit(X, y, devices=owner)
    models = model.fitted_.models
    assert isinstance(models, BoostedModels)
    assert len(models.of_classes(len(names))) == 2  # told the device, and not
    chances = model.predict_proba(X, devices=owner)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert np.mean(model.predict(X, devices=owner) == y) > 0.8
    save_model(model, tmp_path / "kept")
    again = load_model(tmp_path / "kept")
    np.testing.assert_array_equal(again.predict_proba(X, devices=owner), chances)
    with pytest.warns(UnseenWarning):
        strange = model.predict_proba(X[:3], devices=["new"] * 3)
    np.testing.assert_allclose(strange.sum(axis=1), 1.0)
    arrays = models_to(models)
    for there in (np.array([5, 1]), np.array([0, 1, 2, 9]), np.array([-1, 0])):
        with pytest.raises(InputError):
            models_from(
                arrays | {"boosted_there": there}, features=2, classes=len(names)
            )
    shares = arrays["boosted_shares"]
    shares = np.append(shares, shares[-1])  # one more tree than sets have
    last = {name: arrays[name] for name in arrays if name.startswith("boosted_0_")}
    more = {name.replace("_0_", f"_{len(shares) - 1}_"): last[name] for name in last}
    odd = arrays | more | {"boosted_shares": shares}
    if len(names) > 2:
        with pytest.raises(InputError):
            models_from(odd, features=2, classes=len(names))
        uneven = arrays | {"boosted_shares": np.arange(len(shares) - 1) / 9.0}
        with pytest.raises(InputError):
            models_from(uneven, features=2, classes=len(names))


def test_late_boosting_that_is_too_sure_is_taken_and_calmed() -> None:
    rng = np.random.default_rng(0)
    label = rng.integers(0, 3, 300)
    right = np.eye(3)[label]
    early = log_chances(right + 0.8 * rng.normal(size=(300, 3)))
    # fewer mistakes, and far too sure
    late = log_chances(6.0 * (1.2 * right + 0.8 * rng.normal(size=(300, 3))))
    mistakes = [(each.argmax(axis=1) != label).mean() for each in (early, late)]
    assert mistakes[1] < mistakes[0]
    loss = [-float(each[np.arange(300), label].mean()) for each in (early, late)]
    assert loss[1] > loss[0]
    weight = np.ones(300)
    both = [np.stack([early, late])]
    assert best_stage(both, [label], [weight], share=CALMER) == 1
    assert best_stage(both, [label], [weight]) == 0  # alone nothing calms it
    even = np.full((300, 3), -np.log(3.0))
    log = np.stack([late, even], axis=1)
    shares = pool_shares(log, label, weight, np.full(2, 0.5))
    assert shares[1] > 0.2


def _alike(kinds: int, rows: int = 30, n: int = 24) -> tuple[ClassRule, Array]:
    """Of devices of so many kinds; 0: each of its own."""
    kind = np.arange(n) % kinds if kinds else np.arange(n)
    W = 3.0 * np.random.default_rng(7).normal(size=(n, 3, 2))
    W[1] = -W[0]
    W = W[kind]
    made, _, _, _ = fleet(W, rows)
    found = class_rule(made, TWO, classes=2, trees=False)
    return found, kind[:, None] == kind


def test_devices_of_one_kind_are_alike() -> None:
    found, same = _alike(2)
    chance = found.likeness.chance
    other = ~np.eye(len(same), dtype=bool)
    assert found.likeness.kinds
    assert found.likeness.whole == 0
    assert chance[same & other].min() > chance[~same].max()
    assert np.median(chance[same & other]) > 0.75
    assert chance[~same].max() < 0.2


@pytest.mark.parametrize(("kinds", "whole"), [(1, True), (0, False)])
def test_without_kinds_none_are_found(kinds: int, whole: bool) -> None:
    likeness = _alike(kinds)[0].likeness
    assert not likeness.kinds
    assert (likeness.whole > 0.8) == whole
    if not whole:
        assert np.nanmax(likeness.chance) <= 0.5 + likeness.whole


def test_far_too_many_hidden_rows_are_thinned() -> None:
    owner = np.repeat([1, 0], [5, 3])
    kept = judging(owner, 2, 2**22)
    assert kept.tolist() == [True] * 4 + [False] + [True] * 3
