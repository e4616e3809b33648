"""Mixed models from sums, and the default rule that is made of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from threadpoolctl import threadpool_info, threadpool_limits

from persfl import Devices, PersonalizedClassifier, PersonalizedRegressor
from persfl.errors import InputError, UnseenWarning
from persfl.learners.shared_trees import BoostedModels
from persfl.learners.storage.family_table import models_from, models_to
from persfl.methods import Blend
from persfl.methods.mixed import grown_trees
from persfl.methods.mixed.class_trees import GrownClasses
from persfl.methods.mixed.device_sums import DeviceSums, about_own_means, total
from persfl.methods.mixed.grown_trees import grow
from persfl.methods.mixed.hidden_evidence import HiddenEvidence
from persfl.methods.mixed.hidden_rows import hidden_rows
from persfl.methods.mixed.linear_rule import blend_of_sums, linear_blend
from persfl.methods.mixed.mixed_model import MixedModel
from persfl.methods.mixed.near_centres import near
from persfl.methods.mixed.stacking import EXPECTED, shares_of
from persfl.runs import load_model, save_model
from persfl.sources import clustered_regression
from persfl.types import Array

LINEAR = Blend(trees=False)


def _rows(n: int = 12, each: int = 15, d: int = 3, seed: int = 0) -> Devices:
    """Devices with levels and slopes of their own."""
    draw = np.random.default_rng(seed)
    W = draw.normal(size=d + 1) + draw.normal(size=(n, d + 1)) * np.linspace(
        1.0, 0.2, d + 1
    )
    items = []
    for w in W:
        X = draw.normal(size=(each, d))
        items.append((X, w[0] + X @ w[1:] + 0.5 * draw.normal(size=each)))
    return Devices.of(items, quiet=True)


def _sums(rows: Devices) -> DeviceSums:
    Z = np.column_stack([np.ones(len(rows.y)), rows.X])
    return DeviceSums.of(Z, rows.y, rows.weight, rows.start)


def _restricted(parts: Array, rows: Devices) -> float:
    """Minus the restricted log likelihood, written down from the rows; the slow way."""
    variance, noise = np.exp(parts)
    fixed = np.zeros((4, 4))
    told = np.zeros(4)
    value = 0.0
    known = []
    for data in rows:
        Z = np.column_stack([np.ones(len(data.y)), data.X])
        omega = variance * np.ones((len(Z), len(Z))) + noise * np.eye(len(Z))
        inverse = np.linalg.inv(omega)
        value += np.linalg.slogdet(omega)[1]
        fixed += Z.T @ inverse @ Z
        told += Z.T @ inverse @ data.y
        known.append((Z, inverse, data.y))
    centre = np.linalg.solve(fixed, told)
    for Z, inverse, y in known:
        left = y - Z @ centre
        value += left @ inverse @ left
    return float(value + np.linalg.slogdet(fixed)[1])


def test_a_random_level_is_where_the_restricted_likelihood_is_highest() -> None:
    rows = _rows(n=30, each=8)
    sums = _sums(rows)
    _, found = MixedModel(np.array([0])).fit(sums, steps=400)
    best = minimize(_restricted, np.zeros(2), args=(rows,), method="Nelder-Mead")
    variance, noise = np.exp(best.x)
    assert found.Sigma[0, 0] == pytest.approx(variance, rel=0.05)
    # the noise is found without taking off what the centre costs: four of 240 rows
    assert 1 / found.noise.usual == pytest.approx(noise, rel=0.05)


def test_personal_models_lie_between_own_and_pooled_ones() -> None:
    rows = _rows(n=40, each=30)
    sums = _sums(rows)
    own = np.stack(
        [np.linalg.solve(G, b) for G, b in zip(sums.square, sums.product, strict=True)]
    )
    pooled, _ = MixedModel(np.arange(0)).fit(sums)
    assert np.ptp(pooled, axis=0).max() == 0.0
    models, found = MixedModel(np.arange(4)).fit(sums)
    assert np.abs(models - own).max() < np.abs(pooled - own).max()
    # the first column varies most, as it was made
    assert np.diag(found.Sigma).argmax() == 0


def test_columns_about_own_means_are_the_same_model() -> None:
    rows = _rows()
    sums = _sums(rows)
    centred, back = about_own_means(sums)
    X = rows[3].X
    here = np.column_stack([np.ones(len(X)), X])
    there = np.column_stack([np.ones(len(X)), X - X.mean(axis=0)])
    v = np.arange(1.0, 5.0)
    np.testing.assert_allclose(there @ v, here @ (back[3].T @ v))
    np.testing.assert_allclose(centred.square[3], there.T @ there, atol=1e-12)


def test_near_finds_kinds() -> None:
    devices = clustered_regression(
        n=40, clusters=4, rows=10, features=6, noise=0.3, seed=1
    )
    sums = _sums(devices)
    start, found = MixedModel(np.arange(7), full=True, loud=True).fit(sums)
    close = near(sums, found.noise.each, start, found.Sigma / 2, np.arange(40))
    assert devices.clusters is not None
    same = devices.clusters[:, None] == devices.clusters[None, :]
    assert (close.posterior * same).sum(axis=1).min() > 0.99
    assert np.diag(close.posterior).max() == 0.0
    np.testing.assert_allclose(close.posterior.sum(axis=1), 1.0)


def test_shares_are_least_squares_over_the_simplex() -> None:
    draw = np.random.default_rng(0)
    left = draw.normal(size=(4000, 3)) * [1.0, 1.2, 3.0] + draw.normal(size=(4000, 1))
    Q = left.T @ left
    found = shares_of(Q, 4000.0, 0)
    grid = [
        np.array([a, b, 1 - a - b])
        for a in np.linspace(0, 1, 101)
        for b in np.linspace(0, 1 - a, 51)
    ]
    best = min(float(a @ Q @ a) for a in grid)
    assert found @ Q @ found <= best * 1.001
    assert found.min() >= 0.0


def test_few_rows_lean_on_one_model_for_all() -> None:
    Q = np.diag([EXPECTED, EXPECTED, EXPECTED]) / 10
    assert shares_of(Q, 1.0, 1).argmax() == 1


def test_nothing_is_in_two_parts_and_the_future_is_never_learned() -> None:
    rows = _rows(n=5, each=11)
    hidden = hidden_rows(rows, 3)
    for fold in hidden.folds:
        assert not set(fold.learn) & set(fold.judge)
    counts = np.stack(
        [np.bincount(hidden.part[rows.owner == i], minlength=5) for i in range(5)]
    )
    assert counts.min() >= 2
    forward = hidden_rows(rows, 3, ordered=True)
    within = np.arange(len(rows.y)) - rows.start[rows.owner]
    for fold in forward.folds:
        for i in range(5):
            mine = rows.owner == i
            learned = within[mine & np.isin(forward.part, fold.learn)]
            judged = within[mine & np.isin(forward.part, fold.judge)]
            assert learned.max() < judged.min()
    dates = np.tile(np.arange(11), 5)
    blocks = hidden_rows(rows, 3, blocks=dates)
    assert all(len(set(blocks.part[dates == date])) == 1 for date in range(11))


def test_rows_are_not_needed_but_for_trees() -> None:
    rows = _rows()
    alone = linear_blend(rows, level=True, seed=4, trees=False)
    hidden = hidden_rows(rows, 4)
    Z = np.column_stack([np.ones(len(rows.y)), rows.X])
    parts = [
        DeviceSums.of(Z, rows.y, 1.0 * (hidden.part == k), rows.start) for k in range(5)
    ]
    np.testing.assert_allclose(total(parts).square, _sums(rows).square, rtol=1e-12)
    found = blend_of_sums(parts, hidden.folds, level=True, seed=4)
    np.testing.assert_allclose(found.shares, alone.shares)
    np.testing.assert_allclose(alone.made_of.sum(axis=1), 1.0)
    assert alone.made_of.min() >= 0.0


def test_a_loud_device_neither_misleads_nor_is_misled() -> None:
    draw = np.random.default_rng(1)
    n, each, d = 40, 20, 4
    W = draw.normal(size=d) + 0.3 * draw.normal(size=(n, d))
    noise = np.full(n, 0.05)
    noise[0] = 5.0
    items = []
    for w, size in zip(W, noise, strict=True):
        X = draw.normal(size=(each, d))
        items.append((X, X @ w + size * draw.normal(size=each)))
    found = linear_blend(Devices.of(items, quiet=True), level=True, seed=0, trees=False)
    wrong = ((found.models[:, 1:] - W) ** 2).sum(axis=1)
    one = ((W.mean(axis=0) - W) ** 2).sum(axis=1)
    assert wrong[0] < 2 * one.mean()
    assert wrong[1:].max() < 0.05


def test_many_columns_take_their_principal_axes() -> None:
    draw = np.random.default_rng(0)
    slopes = np.zeros(300)
    slopes[:3] = 1.0
    items = []
    for _ in range(3):
        X = draw.normal(size=(60, 300)) * np.where(np.arange(300) < 3, 5.0, 0.1)
        items.append((X, X @ slopes + 0.1 * draw.normal(size=60)))
    rows = Devices.of(items, quiet=True)
    found = linear_blend(rows, level=True, seed=0)
    assert found.models.shape == (3, 301)
    said = found.models[rows.owner, 0] + (rows.X * found.models[rows.owner, 1:]).sum(
        axis=1
    )
    assert np.mean((said - rows.y) ** 2) < 0.05 * rows.y.var()


def _curved(n: int = 10, each: int = 40) -> Devices:
    draw = np.random.default_rng(5)
    level = draw.normal(size=n)
    items = []
    for i in range(n):
        X = draw.uniform(-2, 2, size=(each, 2))
        items.append((X, level[i] + np.abs(X[:, 0]) * 3 + 0.1 * draw.normal(size=each)))
    return Devices.of(items, quiet=True)


def test_trees_say_what_scikit_learn_says() -> None:
    rows = _curved()
    which = np.flatnonzero(rows.owner != 4)  # one device has no rows here
    trees = grow(rows, which, rows.y[which])
    wide = np.column_stack([rows.owner, rows.X])
    model = HistGradientBoostingRegressor(categorical_features=[0], random_state=0)
    model.fit(wide[which], rows.y[which])
    there = np.column_stack([np.where(rows.owner == 4, np.nan, rows.owner), rows.X])
    np.testing.assert_allclose(
        trees.predict(rows.X, rows.owner), model.predict(there), atol=1e-12
    )
    strangers = np.full(len(rows.y), -1)
    there[:, 0] = np.nan
    np.testing.assert_allclose(
        trees.predict(rows.X, strangers), model.predict(there), atol=1e-12
    )


@pytest.mark.parametrize(
    ("classes", "rows", "threads"), [(0, 99, 1), (2, 99, 1), (0, 101, 2), (2, 101, 2)]
)
def test_trees_of_few_rows_are_grown_by_one_thread(
    classes: int, rows: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that share a busy core with others wait a hundred times as long as they work."""
    monkeypatch.setattr(grown_trees, "FEW", 100)
    seen = []

    def spy(*words: object, **more: object) -> None:
        seen.append({lib["num_threads"] for lib in openmp()})
        raise InterruptedError

    def openmp() -> list[dict[str, object]]:
        return [lib for lib in threadpool_info() if lib["user_api"] == "openmp"]

    kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    monkeypatch.setattr(kind, "fit", spy)
    table = _curved()
    some = np.arange(rows)

    def begin() -> object:
        if classes:
            return GrownClasses(table, some, classes, 5)
        return grow(table, some, table.y[some])

    with threadpool_limits(2, user_api="openmp"), pytest.raises(InterruptedError):
        begin()
    assert seen == [{threads}]


def test_trees_are_offered_where_rows_bend_and_left_where_they_do_not() -> None:
    found = linear_blend(_curved(), level=True, seed=0)
    assert sum(share for share, _ in found.trees) > 0.5
    straight = linear_blend(_rows(n=20, each=20), level=True, seed=0)
    assert sum(share for share, _ in straight.trees) < 0.1


@pytest.fixture(scope="module")
def bent() -> PersonalizedRegressor:
    """A fit whose models have trees."""
    rows = _curved()
    made = PersonalizedRegressor(random_state=0, holdout=0)
    return made.fit(rows.X, rows.y, devices=rows.owner)


def test_a_hundred_rows_that_bend_are_enough_for_trees() -> None:
    draw = np.random.default_rng(3)
    owner = np.repeat(np.arange(6), 18)
    X = draw.uniform(-3, 3, size=(len(owner), 1))
    y = 3 * np.sin(2 * X[:, 0]) + 0.3 * draw.normal(size=len(owner))
    rows = Devices.grouped(X, y, owner, range(6))
    found, plain = (
        linear_blend(rows, level=True, seed=0, trees=trees) for trees in (True, False)
    )
    new = draw.uniform(-3, 3, size=(600, 1))
    who = np.arange(600) % 6
    Z = np.column_stack([np.ones(600), new])

    def missed(models: Array, more: Array) -> float:
        said = (Z * models[who]).sum(axis=1) + more
        return float(((said - 3 * np.sin(2 * new[:, 0])) ** 2).mean())

    grown = sum(share * trees.predict(new, who) for share, trees in found.trees)
    assert missed(found.models, np.asarray(grown)) < 0.6 * missed(
        plain.models, np.zeros(600)
    )


def test_fewer_rows_need_to_be_clear_to_have_trees() -> None:
    """Sixty rows: a step is clear, a line is not; forty rows are too few."""
    grown = []
    for seed in range(1, 3):
        draw = np.random.default_rng(seed)
        X = draw.uniform(-1, 1, size=(6, 10, 1))
        noise = 0.1 * draw.normal(size=(6, 10))
        bent = 3.0 * (X[:, :, 0] > 0) + noise
        for y, many in ((bent, 6), (X[:, :, 0] + noise, 6), (bent, 4)):
            rows = Devices.of(list(zip(X[:many], y[:many], strict=True)), quiet=True)
            found = linear_blend(rows, level=True, seed=0)
            grown.append(sum(share for share, _ in found.trees))
    step, line, few = np.array(grown).reshape(2, 3).T
    assert (step > 0.5).all()
    assert (line == 0).all()
    assert (few == 0).all()


def test_fewer_rows_than_columns_grow_no_trees(monkeypatch) -> None:
    """Ninety rows of 91 columns took three times as long with them, and are told apart by none."""
    asked = []

    def grown(known, *_):
        asked.append(len(known.whole.models))
        return known

    monkeypatch.setattr("persfl.methods.mixed.linear_rule.with_tree_offers", grown)
    draw = np.random.default_rng(0)
    for columns in (91, 5):
        X, y = draw.normal(size=(3, 30, columns)), draw.normal(size=(3, 30))
        rows = Devices.of(list(zip(X, y, strict=True)), quiet=True)
        linear_blend(rows, level=True, seed=0)
        assert len(asked) == (columns == 5)


def test_devices_with_large_labels_have_a_say_in_shares() -> None:
    draw = np.random.default_rng(0)
    owner = np.repeat(np.arange(30), 20)
    large = owner >= 24
    y = np.where(large, 10.0, 1.0) * draw.normal(size=len(owner))
    # one offer is good for quiet devices, the other for those with large labels
    left = np.where(large[:, None], [[1.0, 0.3]], [[0.3, 1.0]]) * y[:, None]
    every = np.arange(len(owner))
    fold = every % 5
    one = np.ones(len(owner))
    calm = np.where(large, 0.01, 1.0)  # as the noise of own rows has it
    told = HiddenEvidence(fold, every, owner, one, calm, left)
    quietly = left * np.sqrt(calm)[:, None]
    before = shares_of(quietly.T @ quietly, float(calm.sum()), 0)
    assert before[0] > 0.5
    shares = told.shares(0)
    assert ((left @ shares) ** 2).sum() < 0.5 * ((left @ before) ** 2).sum()
    # where nobody is loud nothing moves
    alike = HiddenEvidence(fold, every, owner, one, one, left)
    np.testing.assert_array_equal(
        alike.shares(0), shares_of(left.T @ left, float(len(owner)), 0)
    )


def test_trees_come_back_from_arrays(bent: PersonalizedRegressor) -> None:
    models = bent.fitted_.models
    assert isinstance(models, BoostedModels)
    arrays = models_to(models)
    again = models_from(arrays, features=2, classes=0)
    X = np.random.default_rng(0).normal(size=(50, 2))
    owner = np.arange(50) % 10
    np.testing.assert_array_equal(again.added(X, owner), models.added(X, owner))
    for name, wrong in (
        ("boosted_0_left", lambda a: np.where(a > 0, 0, a)),  # back up
        ("boosted_0_right", lambda a: a + 10**9),
        ("boosted_0_feature", lambda a: np.where(a >= 0, 7, a)),
        ("boosted_0_sides", lambda a: a + 10**6),
        ("boosted_0_place", lambda a: a + 300),
        ("boosted_0_value", lambda a: a * np.nan),
        ("boosted_0_root", lambda a: a[::-1].copy()),
        ("boosted_0_goes_left", lambda a: a[:, :3]),
        ("boosted_0_goes_left", lambda a: a[:0]),
        ("boosted_shares", lambda a: a * np.inf),
        ("boosted_alone", lambda a: a[:3]),
    ):
        with pytest.raises((InputError, ValueError)):
            models_from(arrays | {name: wrong(arrays[name])}, features=2, classes=0)


def test_coefficients_are_refused_beside_trees(bent: PersonalizedRegressor) -> None:
    with pytest.raises(InputError, match="trees=False"):
        bent.fitted_.coefficients()


def _slopes(n: int = 30, each: int = 12) -> tuple[Devices, Array]:
    """Devices whose slopes differ; the last one has many rows."""
    draw = np.random.default_rng(7)
    W = np.array([2.0, -1.0]) + 0.5 * draw.normal(size=(n, 2))
    items = []
    for i, w in enumerate(W):
        X = draw.normal(size=(300 if i == n - 1 else each, 2))
        items.append((X, 3.0 + X @ w + 0.3 * draw.normal(size=len(X))))
    return Devices.of(items, quiet=True), W


def test_a_device_that_was_not_there_adapts_without_a_new_fit(tmp_path: Path) -> None:
    rows, _ = _slopes()
    last = rows.owner == len(rows) - 1
    model = PersonalizedRegressor(method=LINEAR, holdout=0, random_state=0)
    model.fit(rows.X[~last], rows.y[~last], devices=rows.owner[~last])
    before = model.predict(rows.X[~last], devices=rows.owner[~last])
    X, y = rows.X[last], rows.y[last]

    def missed(said: Array) -> float:
        return float(np.mean((said - y[50:]) ** 2))

    with pytest.warns(UnseenWarning):
        nobody = missed(model.predict(X[50:], devices=["new"] * 250))
    some = missed(model.adapt(X[:4], y[:4]).predict(X[50:]))
    more = missed(model.adapt(X[:50], y[:50]).predict(X[50:]))
    assert more < some < nobody
    assert more < 0.12  # the noise is 0.09
    np.testing.assert_array_equal(
        model.predict(rows.X[~last], devices=rows.owner[~last]), before
    )
    save_model(model, tmp_path / "kept")
    again = load_model(tmp_path / "kept").adapt(X[:4], y[:4])
    assert missed(again.predict(X[50:])) == pytest.approx(some)


def test_an_adapted_model_is_near_what_a_fit_with_these_rows_gives() -> None:
    rows, _ = _slopes(each=12)
    last = rows.owner == len(rows) - 1
    few = ~last | (np.cumsum(last) <= 6) & last
    whole = PersonalizedRegressor(method=LINEAR, holdout=0, random_state=0)
    whole.fit(rows.X[few], rows.y[few], devices=rows.owner[few])
    part = PersonalizedRegressor(method=LINEAR, holdout=0, random_state=0)
    part.fit(rows.X[~last], rows.y[~last], devices=rows.owner[~last])
    X = rows.X[last][6:]
    fitted = whole.predict(X, devices=rows.owner[last][6:])
    adapted = part.adapt(rows.X[last][:6], rows.y[last][:6]).predict(X)
    assert np.mean((fitted - adapted) ** 2) < 0.02 * rows.y.var()


def test_other_linear_models_adapt_from_the_one_for_all() -> None:
    draw = np.random.default_rng(0)
    X = draw.normal(size=(200, 2))
    y = np.where(X[:, 0] + 0.3 * draw.normal(size=200) > 0, "up", "down")
    made = PersonalizedClassifier(method="own", holdout=0, random_state=0)
    made.fit(X, y, devices=np.arange(200) % 10)
    new = made.adapt(X[:5], y[:5])
    assert np.mean(new.predict(X) == y) > 0.8
    np.testing.assert_allclose(new.predict_proba(X).sum(axis=1), 1.0)
