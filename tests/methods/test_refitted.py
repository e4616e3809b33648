"""Blend of models that are refitted: few fits, shared models, kept without objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, PoissonRegressor
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from persfl import (
    Estimator,
    PersonalizedClassifier,
    PersonalizedRegressor,
    Tree,
)
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.evaluation.rivals import own_fits, pooled_fit
from persfl.evaluation.row_order import RowOrder
from persfl.fitting.setup import chosen
from persfl.learners.fleet_mix import FleetMix
from persfl.learners.responses import respond, respond_each
from persfl.learners.storage.family_table import models_from, models_to
from persfl.methods.refitted.near_groups import near_groups
from persfl.methods.refitted.recipes import FIXED
from persfl.methods.refitted.rule import PURSE, refit_blend
from persfl.runs import load_model, save_model
from persfl.sources import clustered_regression
from persfl.types import Array, Data


def _kinds(each: int, *, n: int = 12, seed: int = 0, classes: bool = False) -> Devices:
    """Devices of two kinds, each with a tree of its own."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(n), each)
    X = rng.normal(size=(n * each, 3))
    one = np.where(X[:, 0] > 0, 3.0, -1.0) + np.where(X[:, 1] > 0.5, 1.0, 0.0)
    two = np.where(X[:, 2] > 0, -3.0, 2.0)
    y = np.where(owner % 2 == 0, one, two) + 0.3 * rng.normal(size=n * each)
    return Devices.grouped(X, (y > 0) + 0.0 if classes else y, owner, list(range(n)))


def _missed(learner: Any, models: Any, rows: Devices, classes: int = 0) -> float:
    said = respond_each(learner, models, rows.X, rows.owner, classes)
    if classes:
        return float((said.argmax(axis=1) != rows.y).mean())
    return float(((said - rows.y) ** 2).mean())


@pytest.mark.parametrize(
    ("learner", "classes"),
    [
        (Tree(3), 0),
        (Estimator(RandomForestRegressor(5, random_state=0)), 0),
        (Estimator(DecisionTreeClassifier(max_depth=3, random_state=0)), 2),
    ],
)
def test_kinds_are_found_and_share_models(learner: Any, classes: int) -> None:
    learn = _kinds(40, classes=bool(classes))
    test = _kinds(60, seed=1, classes=bool(classes))
    found = refit_blend(learn, learner, classes=classes, seed=0)
    missed = _missed(learner, found.models, test, classes)
    n = len(learn)
    assert missed <= _missed(learner, own_fits(learner, learn), test, classes)
    assert missed < _missed(learner, [pooled_fit(learner, learn)] * n, test, classes)
    np.testing.assert_allclose(found.shares.sum(), 1.0)
    np.testing.assert_allclose(found.made_of.sum(axis=1), 1.0)


def test_a_straight_fleet_is_left_to_the_linear_rule() -> None:
    both = clustered_regression(
        n=20, clusters=2, rows=60, features=3, noise=0.5, seed=0
    )
    hidden = np.arange(len(both.y)) % 60 >= 20
    learn, test = (
        Devices.grouped(both.X[part], both.y[part], both.owner[part], list(range(20)))
        for part in (~hidden, hidden)
    )
    found = refit_blend(learn, Tree(3))
    near = found.view.models[0, found.view.names.index("near")]
    straight = FleetMix(near, (), found.models.alone)
    missed = [_missed(Tree(3), models, test) for models in (found.models, straight)]
    assert missed[0] < 1.05 * missed[1]


@pytest.mark.parametrize("ordered", [False, True])
def test_fits_are_few(ordered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound of the docstring, in rows that fits have seen and fits that were made."""
    spent: list[float] = []
    rows = _kinds(50, n=40)
    whole = len(rows.y)
    real = Estimator.fit

    def fit(self: Estimator, data: Data, place: Any) -> Any:
        wider = data.X.shape[1] / rows.features
        spent.append((len(data.y) + FIXED) / (whole + FIXED) * wider)
        return real(self, data, place)

    learner = Estimator(RandomForestRegressor(2, max_depth=2))
    monkeypatch.setattr(Estimator, "fit", fit)
    refit_blend(rows, learner, order=RowOrder(ordered=ordered))
    # and the try whether leftovers can be fitted
    assert 3 < sum(spent) < PURSE + 0.5
    assert len(spent) < 40  # no fit of a single device


def test_the_same_seed_gives_the_same() -> None:
    rows = _kinds(15)
    learner = Estimator(RandomForestRegressor(3))
    first, again, other = (refit_blend(rows, learner, seed=s) for s in (0, 0, 1))
    said = [
        respond_each(learner, f.models, rows.X, rows.owner)
        for f in (first, again, other)
    ]
    np.testing.assert_array_equal(said[0], said[1])
    assert not np.array_equal(said[0], said[2])


def test_one_device_answers_as_the_fleet_does() -> None:
    rows = _kinds(15)
    found = refit_blend(rows, Tree(3))
    every = respond_each(Tree(3), found.models, rows.X, rows.owner)
    for i in (0, 7, -1):
        mine = rows.owner == i % len(rows)
        said = respond(Tree(3), found.models[i], rows.X[mine])
        np.testing.assert_allclose(said, every[mine], atol=1e-9)
    assert len(found.models[2:5]) == 3


@pytest.mark.parametrize("each", [1, 2, 3])
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("classes", [0, 2])
def test_very_few_rows(each: int, ordered: bool, classes: int) -> None:
    rows = _kinds(each, n=4, classes=bool(classes))
    learner: Any = Tree(2)
    if classes:
        learner = Estimator(DecisionTreeClassifier(max_depth=2))
    found = refit_blend(rows, learner, classes=classes, order=RowOrder(ordered=ordered))
    said = respond_each(learner, found.models, rows.X, rows.owner, classes)
    assert np.isfinite(said).all()
    if classes:
        np.testing.assert_allclose(said.sum(axis=1), 1.0)


def test_models_of_counts_learn_no_leftovers() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    y = rng.poisson(np.exp(0.5 * X[:, 0])) + 0.0
    rows = Devices.grouped(X, y, np.arange(120) % 6, list(range(6)))
    learner = Estimator(PoissonRegressor())
    found = refit_blend(rows, learner)
    assert not any("rest" in name for name in found.names)
    assert np.isfinite(_missed(learner, found.models, rows))


def test_many_classes_some_of_which_devices_have_not_seen() -> None:
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(8), 30)
    X = rng.normal(size=(240, 2))
    y = (np.digitize(X[:, 0], [-1, 0, 1]) + owner % 2) % 5 + 0.0
    rows = Devices.grouped(X, y, owner, list(range(8)))
    learner = Estimator(LogisticRegression())
    found = refit_blend(rows, learner, classes=5)
    said = respond_each(learner, found.models, rows.X, rows.owner, 5)
    np.testing.assert_allclose(said.sum(axis=1), 1.0)
    assert (said >= 0).all()


def test_groups_are_never_smaller_than_a_model_needs() -> None:
    answers = (
        np.repeat(np.arange(4.0) * 10, 5)[:, None] + np.tile(np.arange(5.0), 4)[:, None]
    )
    assert near_groups(answers, np.full(20, 4), 0).max() == 0
    assert near_groups(answers, np.full(20, 21), 0).max() == 3
    rows = np.where(np.arange(20) < 5, 1, 40)
    uneven = near_groups(answers, rows, 0)
    assert uneven.max() == 2
    assert np.bincount(uneven, weights=rows).min() >= 100


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    """Models of trees of a fleet, as arrays."""
    return models_to(refit_blend(_kinds(20), Tree(3)).models)


def test_models_come_back_from_arrays(kept: dict[str, Any]) -> None:
    rows = _kinds(20)
    found = refit_blend(rows, Tree(3)).models
    again = models_from(kept, features=3, classes=0)
    said = [respond_each(Tree(3), each, rows.X, rows.owner) for each in (found, again)]
    np.testing.assert_array_equal(said[0], said[1])
    # shared models are kept once: far fewer than one a device and bank
    assert isinstance(again, FleetMix)
    assert all(len(bank.models) <= len(rows) for _, bank in again.banks)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("bank_shares", lambda a: a * np.nan),
        ("bank_shares", lambda a: a - 2.0),
        ("bank_shares", lambda a: a[:, None]),
        ("bank_vectors", lambda a: a[:, :2]),
        ("bank_vectors", lambda a: a * np.inf),
        ("bank_0_which", lambda a: a + 10**9),
        ("bank_0_which", lambda a: a - 5),
        ("bank_0_which", lambda a: a[:3]),
        ("bank_0_told", lambda a: a[:, :, :2]),
        ("bank_0_told", lambda a: a[0]),
        ("bank_alone_which", lambda a: a + 1),
        ("bank_0_of_tree_left", lambda a: np.where(a > 0, 0, a)),
        ("bank_0_of_tree_feature", lambda a: np.where(a >= 0, 70, a)),
        ("bank_0_of_tree_value", lambda a: a * np.inf),
    ],
)
def test_damaged_banks_are_refused(kept: dict[str, Any], name: str, wrong: Any) -> None:
    with pytest.raises((InputError, ValueError)), np.errstate(invalid="ignore"):
        models_from(kept | {name: wrong(kept[name])}, features=3, classes=0)


def test_devices_that_keep_their_own_models() -> None:
    rows = _kinds(20)
    found = refit_blend(rows, Tree(3)).models
    own: Any = own_fits(Tree(3), rows)
    which = np.arange(len(rows)) < 3
    mixed = chosen(which, own, found)
    said = respond_each(Tree(3), mixed, rows.X, rows.owner)
    mine = which[rows.owner]
    alone = respond_each(Tree(3), own, rows.X, rows.owner)
    np.testing.assert_array_equal(said[mine], alone[mine])
    shared = respond_each(Tree(3), found, rows.X, rows.owner)
    np.testing.assert_array_equal(said[~mine], shared[~mine])
    again = models_from(models_to(mixed), features=3, classes=0)
    np.testing.assert_array_equal(
        respond_each(Tree(3), again, rows.X, rows.owner), said
    )


@pytest.mark.parametrize("classes", [False, True])
def test_a_fit_is_kept_and_goes_on(classes: bool, tmp_path: Path) -> None:
    rows = _kinds(12, n=6, classes=classes)
    model: Any
    if classes:
        base: Any = RandomForestClassifier(3, max_depth=3, random_state=0)
        model = PersonalizedClassifier(base, random_state=0)
    else:
        base = DecisionTreeRegressor(max_depth=3, random_state=0)
        model = PersonalizedRegressor(base, random_state=0, fallback=True)
    model.fit(rows.X, rows.y, devices=rows.owner)

    def said(of: Any) -> Array:
        return np.asarray(of.predict(rows.X, devices=rows.owner))

    again = load_model(save_model(model, tmp_path / "run"))
    np.testing.assert_array_equal(said(again), said(model))
    made = model.made_of()[["own", "fleet", "neighbours"]]
    np.testing.assert_allclose(made.sum(axis=1), 1.0)
    online = type(model)(base, random_state=0, window=10)
    for part in (slice(0, None, 2), slice(1, None, 2)):
        online.partial_fit(rows.X[part], rows.y[part], devices=rows.owner[part])
    assert len(said(online)) == len(rows.y)
