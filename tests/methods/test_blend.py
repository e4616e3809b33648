"""Blend: as good as the best of its parts, honest folds, exact again, kept and loaded; says
what models are made of.
"""

import importlib
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from persfl import (
    Linear,
    PersflError,
    PersonalizedClassifier,
    PersonalizedRegressor,
    Refit,
    Tree,
    Trust,
    cli,
)
from persfl.datasets import load_flights, load_housing
from persfl.devices import Devices
from persfl.evaluation.split import split as split_rows
from persfl.methods import Blend
from persfl.methods.blend import blend, local_site, sorts
from persfl.methods.blend.blend_settings import USUAL
from persfl.methods.blend.evidence import shares_by_loss
from persfl.methods.blend.fixed_point import mean_of, settled
from persfl.methods.blend.folds import copies, fold_numbers, judged_weight
from persfl.methods.blend.linear_rows import spreads
from persfl.methods.blend.neighbours import Neighbours
from persfl.methods.blend.offers.own_steps import level, tuned
from persfl.methods.blend.ridge_refit import Toward
from persfl.methods.blend.site_in_process import LocalBundle
from persfl.methods.blend.views import View, ViewSettings
from persfl.report import info
from persfl.runs import load_model, save_model
from persfl.sources import clustered_regression
from persfl.testing import check_proposer
from persfl.types import Data


def split(frame, device, few, seed):
    """A few random rows of each device to learn from, and the others."""
    mark = np.random.default_rng(seed).permutation(len(frame))
    place = pd.Series(mark, index=frame.index).groupby(frame[device]).rank()
    return frame[place <= few], frame[place > few]


def housing_error(method, seed):
    housing = load_housing()
    learn, test = split(housing.frame, "city", 10, seed)
    model = PersonalizedRegressor(method=method, holdout=0).fit(
        learn[housing.feature_names], learn["log_price"], devices=learn["city"]
    )
    missed = (
        model.predict(test[housing.feature_names], devices=test["city"])
        - test["log_price"]
    ) ** 2
    return missed.groupby(test["city"]).mean().mean() / housing.target.var(), model


def test_better_than_the_printed_rule_on_house_prices():
    theirs, ours = (
        np.mean([housing_error(method, seed)[0] for seed in (1, 2)])
        for method in ("paper", "blend")
    )
    assert ours < 0.95 * theirs
    assert ours < 0.1305  # what the rule before mixed models had


def test_a_refit_question_is_its_public_points():
    rng = np.random.default_rng(0)
    learner, data = (
        Linear(intercept=True),
        Data(
            rng.normal(size=(4, 7, 3)),
            rng.normal(size=(4, 7)),
            rng.uniform(0, 2, (4, 7)),
        ),
    )
    asked = Toward(np.array([0.5, 2.0, 9.0, 0.3]))
    model = rng.normal(size=(4, 4))
    points = asked.refit()
    assert isinstance(points, Refit)
    np.testing.assert_allclose(
        asked.answer(learner, asked.ask(learner, model), data, None),
        points.answer(learner, points.ask(learner, model), data, None),
        atol=1e-9,
    )
    check_proposer(Toward(np.array([0.5, 2.0, 9.0])), learner=Linear())
    with pytest.raises(PersflError, match="one strength per coefficient"):
        asked.ask(learner, model[:, :3])
    with pytest.raises(PersflError, match="squared loss"):
        asked.ask(Linear("logistic"), model)
    with pytest.raises(PersflError, match="positive"):
        Toward(np.array([1.0, -1.0]))


def test_folds_hide_rows_and_every_row_once():
    devices = Devices.of(
        [(np.arange(n)[:, None] + 0.0, np.arange(n) % 3 + 0.0) for n in (7, 2, 1)],
        quiet=True,
    )
    assert np.bincount(fold_numbers(devices, 3)[:7]).tolist() == [3, 2, 2]
    fold = fold_numbers(devices, 3, ordered=True)
    assert fold.tolist() == [0, 0, 0, 1, 1, 2, 2, 0, 1, 0]
    own = copies(devices, fold, np.arange(3), 3)
    assert own.counts.tolist() == [7] * 4 + [2] * 4 + [1] * 4
    hidden = [
        7 * 4 - own.weight[:28].sum(),
        2 * 4 - own.weight[28:36].sum(),
        4 - own.weight[36:].sum(),
    ]
    assert hidden == [7, 2, 0]  # a single row cannot be hidden, and is no evidence
    assert judged_weight(devices, fold, 3).tolist() == [1.0] * 9 + [0.0]
    dealt = fold_numbers(devices, 2, classes=3, seed=0)
    assert all(len(set(dealt[:7][devices.y[:7] == k])) == 2 for k in range(3))


@pytest.mark.parametrize("loss", ["huber", "logistic"])
def test_what_judges_a_fold_has_not_seen_it(loss):
    devices = clustered_regression(
        n=12, clusters=2, rows=10, features=3, noise=0.3, seed=0
    )
    y = devices.y if loss == "huber" else (devices.y > 0) + 0.0
    learner = Linear(loss, intercept=True)
    offered = []
    for change in (0.0, 1.0):
        labels = y.copy()
        labels[100:105] = (
            labels[100:105] + 50.0 * change
            if loss == "huber"
            else np.abs(labels[100:105] - change)
        )
        rows = Devices(devices.X, labels, devices.weight, devices.start, devices.ids)
        site = local_site(rows, learner, ordered=True)
        group = site.alone(np.arange(10))
        ((starts, _),) = site.family.starts(LocalBundle(site, [group]))
        offered.append(group.judges.offers(starts))
    for key, before in enumerate(offered[0]):
        # without the first fold, whose labels have changed
        np.testing.assert_array_equal(before[1], offered[1][key][1])
        # the other device
        np.testing.assert_array_equal(before[3:], offered[1][key][3:])
    assert any(
        not np.array_equal(before[0], offered[1][key][0])
        for key, before in enumerate(offered[0])
    )


def test_one_model_for_all_is_found_by_averaged_steps():
    rng = np.random.default_rng(0)
    curve = rng.normal(size=(12, 12))
    curve, truth = (
        curve @ curve.T + np.diag(np.geomspace(0.01, 50, 12)),
        rng.normal(size=12),
    )
    step = 1.0 / np.linalg.eigvalsh(curve)[-1]
    plain = np.zeros(12)
    for _ in range(25):
        plain = plain - step * curve @ (plain - truth)
    found = settled(
        lambda model: model - step * curve @ (model - truth), np.zeros(12), 25
    )
    assert np.abs(found - truth).max() < 1e-3 * np.abs(plain - truth).max()
    # steps that are far too long
    assert np.isfinite(
        settled(lambda model: 3.0 - 9.0 * model**3, np.zeros(2), 30)
    ).all()
    assert settled(lambda model: np.full(2, np.nan), np.ones(2), 5).tolist() == [
        1.0,
        1.0,
    ]
    honest = rng.normal(size=(20, 3))
    liars = np.concatenate([honest, np.full((2, 3), 1e12), np.full((1, 3), np.nan)])
    assert np.abs(mean_of(liars, np.zeros(3), np.ones(23))).max() < 3.0


def test_views_are_the_same_models():
    rng = np.random.default_rng(0)
    devices = Devices.of(
        [(rng.normal(3.0, 2.0, (6, 2)), rng.normal(9.0, 1.0, 6)) for _ in range(4)]
    )
    view = View.of(ViewSettings.of("centred", spreads(devices)), devices)
    inside, learner = view.inside(devices), Linear(intercept=True)
    models = rng.normal(size=(4, 3))
    outside = view.outside(models, learner)
    for i in range(4):
        again = learner.predict(models[i], inside[i].X)
        np.testing.assert_allclose(learner.predict(outside[i], devices[i].X), again)


def test_shares_follow_own_rows_and_the_fleet():
    losses = np.tile([0.2, 0.8], (30, 1))
    losses[0] = [0.8, 0.2]
    # ten rows against the fleet's hundred
    assert shares_by_loss(losses, np.full(30, 10.0), relative=False)[0, 0] > 0.99
    assert (
        shares_by_loss(losses, np.r_[2000.0, np.full(29, 10.0)], relative=False)[0, 1]
        > 0.99
    )
    broken = losses.copy()
    broken[:, 1] = [np.nan, np.inf] * 15
    np.testing.assert_array_equal(
        shares_by_loss(broken, np.full(30, 10.0), relative=True),
        np.tile([1.0, 0.0], (30, 1)),
    )
    np.testing.assert_allclose(
        shares_by_loss(np.ones((3, 4)), np.zeros(3), relative=True), 0.25
    )


def test_two_rows_fitted_by_luck_decide_nothing():
    rng = np.random.default_rng(0)
    sound = rng.chisquare(2, (40, 6)) / 2
    # three times worse in the mean
    wild = (
        rng.chisquare(2, (40, 3)) / 2 * np.where(rng.random((40, 1)) < 0.5, 0.01, 6.0)
    )
    assert (
        shares_by_loss(
            np.concatenate([sound, wild], axis=1), np.full(40, 2.0), relative=True
        )[:, 6:].max()
        < 0.01
    )


def test_own_level_is_an_offer():
    rng = np.random.default_rng(0)
    own = Devices.of([(rng.normal(size=(8, 2)), np.r_[np.zeros(6), np.ones(2)])])
    for learner in (
        Linear("logistic", intercept=True),
        Linear("multinomial", classes=2, intercept=True),
    ):
        model = level(learner, own, 0.3, 100)
        said = learner.predict(model, own.X)
        chance = said[..., 1] if said.ndim == 3 else said
        np.testing.assert_allclose(chance, 0.25, atol=0.02)
    assert not level(Linear("logistic"), own, 0.3, 100).any()


def test_one_row_of_each_class():
    """Every fold hides a class, so own steps look worse than they are; the fleet's evidence
    must not rule them out.
    """
    rng = np.random.default_rng(1)
    devices, classes, rows = 10, 6, 8
    centres = 2.0 * rng.standard_normal((classes, 3))
    shifts = (
        rng.standard_normal((devices, classes, 3)),
        rng.standard_normal((devices, 1, 3)),
    )
    own = centres + 1.2 * (shifts[0] + shifts[1])
    X = (
        own[:, :, None] + 0.3 * rng.standard_normal((devices, classes, rows, 3))
    ).reshape(-1, 3)
    owner, y = (index.ravel() for index in np.indices((devices, classes, rows))[:2])
    first = np.arange(len(y)) % rows == 0
    model = PersonalizedClassifier(method="blend", holdout=0).fit(
        X[first], y[first], devices=owner[first]
    )
    # 0.69 without
    assert model.score(X[~first], y[~first], devices=owner[~first]) > 0.71


def test_neighbours_remember_who_fitted():
    rule = Neighbours(
        peers=4, known=20, rows=np.array([10.0, 10.0]), noise=np.array([1.0, 1.0])
    )
    trust = Trust(22, np.array([20, 21]))
    asked = np.zeros((2, 20))
    for r in range(30):
        peers = rule.sampler(trust, r, 0)
        assert all(
            len(set(row[row >= 0])) == (row >= 0).sum() and row.max() < 20
            for row in peers
        )
        losses = np.concatenate(
            [np.full((2, 1), 9.0), np.where(peers % 5 == 0, 1.0, 4.0)], axis=1
        )
        losses[:, 1:][peers == 7] = np.inf
        trust = trust.noted(rule.note(trust, r, peers, losses, None))
        choice = rule(trust, peers, losses)
        np.testing.assert_allclose(choice.weights.sum(axis=1) + choice.stay, 1.0)
        assert (choice.weights[peers == 7] == 0).all()
        for t in range(2):
            asked[t, peers[t][peers[t] >= 0]] += 1
    assert asked[:, ::5].mean() > 3 * np.delete(asked, np.s_[::5], axis=1).mean()
    assert choice.weights[peers % 5 == 0].sum() > 0.9 * choice.weights.sum()


def stepped(learner, own, start, unseen):
    """Models after own steps."""
    return dict(tuned(learner, own, start, 0.3, unseen, USUAL.steps.own_steps))


def test_classes_never_seen_are_not_forgotten():
    rng = np.random.default_rng(0)
    own = Devices.of([(rng.normal(size=(8, 2)), np.r_[np.zeros(4), np.ones(4)])])
    learner, start = (
        Linear("multinomial", classes=3, intercept=True),
        rng.normal(size=(1, 9)),
    )
    for unseen in ("down", "out"):
        models = stepped(learner, own, start, unseen)
        np.testing.assert_array_equal(models[300][0, 6:], start[0, 6:])
        assert not np.allclose(models[300][0, :6], start[0, :6])
    chance = {
        unseen: (
            learner.predict(
                dict(tuned(learner, own, start, 0.3, unseen, USUAL.steps.own_steps))[
                    300
                ],
                own.X,
            )[..., 2].mean()
        )
        for unseen in ("down", "out")
    }
    assert chance["down"] < chance["out"]


@pytest.fixture(scope="module")
def destinations():
    flights = load_flights()
    few = flights.frame[flights.frame.destination < "BO"]
    return few[flights.feature_names], few["arrival"], few["destination"]


def test_classes(destinations, tmp_path):
    X, y, who = destinations
    first = np.arange(len(y)) % 2 == 0
    model = PersonalizedClassifier(method="blend", holdout=0).fit(
        X[first], y[first], devices=who[first]
    )
    assert model.score(X[~first], y[~first], devices=who[~first]) > 0.55
    np.testing.assert_allclose(
        model.made_of()[["own", "fleet", "neighbours"]].sum(axis=1), 1.0
    )
    again = load_model(save_model(model, tmp_path / "run"))
    np.testing.assert_array_equal(
        again.predict(X, devices=who), model.predict(X, devices=who)
    )
    pd.testing.assert_frame_equal(again.made_of(), model.made_of())


@pytest.mark.parametrize("loss", ["huber", "absolute", "poisson"])
def test_other_losses(loss):
    devices = clustered_regression(
        n=10, clusters=2, rows=8, features=2, noise=0.1, seed=0
    )
    y = (
        np.random.default_rng(0).poisson(np.exp(0.3 * devices.y)) + 0.0
        if loss == "poisson"
        else devices.y
    )
    model = PersonalizedRegressor(
        Linear(loss, intercept=True), method="blend", holdout=0
    ).fit(devices.X, y, devices=devices.owner)
    missed = ((model.predict(devices.X, devices=devices.owner) - y) ** 2).mean()
    assert missed < 0.7 * y.var()


@pytest.mark.parametrize("n", [2, 3, 9])
def test_few_devices_and_single_rows(n):
    devices = clustered_regression(
        n=n, clusters=1, rows=6, features=2, noise=0.1, seed=0
    )
    keep = np.ones(len(devices.X), dtype=bool)
    keep[1:6] = n < 9  # of nine devices, the first has one row
    found = blend(
        Devices(
            devices.X[keep],
            devices.y[keep],
            devices.weight[keep],
            np.concatenate([[0], np.cumsum(np.bincount(devices.owner[keep]))]),
            range(n),
        ),
        Linear(intercept=True),
    )
    assert np.isfinite(found.models).all()
    np.testing.assert_allclose(found.shares.sum(axis=1), 1.0)
    assert np.abs(found.models[:, :2] - devices.true_weights[0]).max() < 0.6


def test_same_seed_same_result_and_weights_count_copies():
    devices = clustered_regression(
        n=16, clusters=2, rows=8, features=3, noise=0.3, seed=0
    )
    one, two, other = (
        blend(devices, Linear(intercept=True), seed=seed) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one.models, two.models)
    assert not np.array_equal(one.models, other.models)
    assert one.trust.table()["asked"].sum() > 0
    assert sorts(one.names, one.shares).shape == (16, 3)


def test_a_run_is_kept_resumed_and_reported(tmp_path, capsys, monkeypatch):
    devices = clustered_regression(
        n=12, clusters=2, rows=8, features=3, noise=0.3, seed=0
    )
    table = pd.DataFrame(devices.X, columns=list("abc")).assign(
        who=devices.owner, y=devices.y
    )
    table.to_csv(tmp_path / "t.csv", index=False)
    command = [
        "fit",
        str(tmp_path / "t.csv"),
        "--device",
        "who",
        "--label",
        "y",
        "--method",
        "blend",
        "--trials",
        "1",
        "--no-report",
    ]
    assert cli.main([*command, "--out", str(tmp_path / "whole")]) == 0
    whole = load_model(tmp_path / "whole")
    assert "neighbours" in capsys.readouterr().out
    module = importlib.import_module("persfl.methods.blend.offers_stage")
    real, calls = module.blend_over, []

    def cut(*given, **more):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*given, **more)

    monkeypatch.setattr(module, "blend_over", cut)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        raise SystemExit(cli.main([*command, "--out", str(tmp_path / "cut")]))
    monkeypatch.setattr(module, "blend_over", real)
    assert cli.main([*command, "--out", str(tmp_path / "cut"), "--resume"]) == 0
    resumed = load_model(tmp_path / "cut")
    np.testing.assert_array_equal(resumed.models_, whole.models_)
    pd.testing.assert_frame_equal(resumed.made_of(), whole.made_of())
    shown = info(resumed)
    assert len(shown["made_of"]["shares"]) == 12
    assert abs(sum(shown["made_of"]["shares"][0]) - 1.0) < 1e-9
    json.dumps(shown)


def test_settings_that_do_not_fit():
    X, y, who = (
        np.random.default_rng(0).normal(size=(12, 2)),
        np.arange(12.0),
        np.repeat([0, 1, 2], 4),
    )
    for wrong, says in (
        ({"method": "blend", "units": "raw"}, "blend goes by shared units"),
        ({"method": Blend(budget=0)}, "budget must be at least 1"),
    ):
        with pytest.raises(PersflError, match=says):
            PersonalizedRegressor(**wrong).fit(X, y, devices=who)
    with pytest.raises(PersflError, match="needs rows that stay"):
        PersonalizedRegressor(method="kin").partial_fit(X, y, devices=who)


def test_rows_in_the_order_of_time():
    devices = clustered_regression(
        n=10, clusters=1, rows=8, features=2, noise=0.2, seed=0
    )
    blocks = blend(devices, Linear(intercept=True), ordered=True)
    assert np.isfinite(blocks.models).all()
    assert not np.array_equal(
        blocks.models, blend(devices, Linear(intercept=True)).models
    )
    learn, held = split_rows(devices, 0.25, seed=0, ordered=True)
    for i in range(10):
        # the latest are held back
        np.testing.assert_array_equal(learn[i].y, devices[i].y[:6])
        np.testing.assert_array_equal(held[i].y, devices[i].y[6:])
    model = PersonalizedRegressor(method="blend", ordered=True).fit(
        devices.X, devices.y, devices=devices.owner
    )
    assert model.worth_.table["held"].tolist() == [2] * 10


def arriving(seed, n=9, rows=6):
    """Blocks of rows of devices that are all alike and slowly change."""
    rng = np.random.default_rng(seed)
    for block in range(4):
        X = rng.normal(size=(n * rows, 2))
        yield (
            X,
            X @ [1.0 + block, -1.0] + 0.1 * rng.normal(size=len(X)),
            np.repeat(np.arange(n), rows),
        )


def test_rows_that_keep_arriving(tmp_path):
    model, again = (PersonalizedRegressor(method="blend", window=9) for _ in range(2))
    for X, y, who in arriving(0):
        model.partial_fit(X, y, devices=who)
        again.partial_fit(X, y, devices=who)
        # a call that fails leaves everything as it was
        with pytest.raises(ValueError, match="NaN"):
            again.partial_fit(X * np.nan, y, devices=who)
    np.testing.assert_array_equal(model.models_, again.models_)
    assert model.rows_.tolist() == [9] * 9
    assert len(model.progress_) == 3
    assert model.losses_.shape == (model.n_rounds_, 9)
    X, y, who = next(arriving(1))
    y = X @ [4.0, -1.0]
    # the kept third of the rows is a block older
    assert ((model.predict(X, devices=who) - y) ** 2).mean() < 0.3
    np.testing.assert_allclose(
        model.made_of()[["own", "fleet", "neighbours"]].sum(axis=1), 1.0
    )
    kept = load_model(save_model(model, tmp_path / "run"))
    np.testing.assert_array_equal(
        kept.predict(X, devices=who), model.predict(X, devices=who)
    )
    more = np.r_[who, [99] * 6]
    model.partial_fit(np.r_[X, X[:6]], np.r_[y, y[:6]], devices=more)  # somebody joins
    assert model.devices_.tolist()[-1] == 99
    assert np.isnan(model.losses_[0, -1])
    assert np.isfinite(model.losses_[-1]).all()


def test_the_first_rows_of_a_stream_are_a_fit_of_ordered_rows():
    X, y, who = next(arriving(0))
    stream, at_once = (
        PersonalizedRegressor(method="blend"),
        PersonalizedRegressor(method="blend", ordered=True, holdout=0),
    )
    stream.partial_fit(X, y, devices=who)
    np.testing.assert_array_equal(
        stream.models_, at_once.fit(X, y, devices=who).models_
    )
    trees = PersonalizedClassifier(
        DecisionTreeClassifier(max_depth=2), method=Blend(budget=20)
    )
    for rows, _, owner in arriving(0, n=3):
        trees.partial_fit(
            rows, (rows[:, 0] > 0).astype(int), devices=owner, classes=[0, 1]
        )
    assert trees.score(rows, rows[:, 0] > 0, devices=owner) > 0.9


def test_adopter_and_sampler_keep_the_promises():
    rule = Neighbours(peers=3, known=6, rows=np.full(1, 5.0), noise=None)
    peers, losses = np.array([[0, 3, -1]]), np.array([[1.0, 0.5, np.inf, np.inf]])
    trust = Trust(7, np.array([6]))
    choice = rule(trust.noted(rule.note(trust, 0, peers, losses, None)), peers, losses)
    assert choice.peers.tolist() == [[0, -1, -1]]
    assert choice.weights.tolist() == [[1.0, 0.0, 0.0]]
    nothing = np.array([[1.0, np.inf, np.inf, np.inf]])
    assert rule(
        trust.noted(rule.note(trust, 0, peers, nothing, None)), peers, nothing
    ).stay.tolist() == [1.0]


@pytest.mark.parametrize(
    "base", [DecisionTreeRegressor(max_depth=3, random_state=0), Tree(3)]
)
def test_trees_are_kept_as_mixes(base, tmp_path):
    housing = load_housing()
    learn, test = split(housing.frame[housing.frame.city < "C"], "city", 10, 0)
    model = PersonalizedRegressor(base, method="blend", holdout=0)
    model.fit(learn[housing.feature_names], learn["log_price"], devices=learn["city"])
    assert all(mix.parts for mix in model.models_)
    said = model.predict(test[housing.feature_names], devices=test["city"])
    again = load_model(save_model(model, tmp_path / "run"))
    np.testing.assert_array_equal(
        again.predict(test[housing.feature_names], devices=test["city"]), said
    )
    pd.testing.assert_frame_equal(again.made_of(), model.made_of())


def test_trees_of_46_cities_help_each_other():
    housing = load_housing()
    learn, test = split(housing.frame, "city", 10, 0)
    X, y, who = test[housing.feature_names], test["log_price"], test["city"]
    missed = {}
    model = PersonalizedRegressor(Tree(3), method="blend", holdout=0)
    model.fit(learn[housing.feature_names], learn["log_price"], devices=learn["city"])
    missed["blend"] = (
        ((model.predict(X, devices=who) - y) ** 2).groupby(who).mean().mean()
    )
    own = []
    for city, rows in learn.groupby("city"):
        tree = DecisionTreeRegressor(max_depth=3, random_state=0).fit(
            rows[housing.feature_names], rows["log_price"]
        )
        own.append(((tree.predict(X[who == city]) - y[who == city]) ** 2).mean())
    assert missed["blend"] < 0.9 * np.mean(own)


def test_of_trees_one_answer_is_adopted_once():
    devices = clustered_regression(n=6, clusters=2, rows=8, features=2, seed=0)
    public = np.random.default_rng(0).normal(size=(9, 2))
    found = blend(devices, Tree(2), public, budget=120)
    by_neighbours = sorts(found.names, found.shares)[:, 2]
    assert by_neighbours.max() > 0
    for round_ in found.rounds:
        choice = round_.choice
        assert (choice.weights.sum(axis=1) <= by_neighbours + 1e-9).all()
        np.testing.assert_allclose(choice.weights.sum(axis=1) + choice.stay, 1.0)
        assert ((choice.peers >= 0).sum(axis=1) <= 1).all()


def test_forests_of_classes(destinations):
    X, y, who = destinations
    few = who <= "BDL"
    model = PersonalizedClassifier(
        DecisionTreeClassifier(max_depth=4, random_state=0), method="blend", trials=1
    )
    model.fit(X[few], y[few], devices=who[few])
    assert model.worth_ is not None
    chances = model.predict_proba(X[few], devices=who[few])
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    again = PersonalizedClassifier(
        DecisionTreeClassifier(max_depth=4, random_state=0), method="blend", trials=1
    )
    np.testing.assert_array_equal(
        again.fit(X[few], y[few], devices=who[few]).predict_proba(
            X[few], devices=who[few]
        ),
        chances,
    )


def test_a_fresh_process_blends():
    """Where nothing else has been imported before: rules import each other."""
    words = (
        "from persfl import Linear; from persfl.methods import Blend, LocalTask;"
        "from persfl.sources import clustered_regression as made;"
        "task = LocalTask(made(n=4, rows=6, features=1, seed=0), Linear(intercept=True));"
        "print(len(Blend(trees=False).run(task).models))"
    )
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True)
    assert done.stdout.strip() == "4", done.stderr


def test_one_device_whose_chances_lose_more_than_can_be_decides_no_shares():
    """It told 1e9 of every offer but one, and all others took that one."""
    losses = np.vstack([np.tile([0.1, 0.6], (8, 1)), [[1e9, 0.0]]])
    found = shares_by_loss(losses, np.full(9, 9.0), relative=False)
    assert (found[:8, 0] > 0.9).all()
    assert found[8].tolist() == [0.0, 1.0]
    broken = np.array([[0.5, 1e100], [0.5, 0.4]])  # a model that is none, at one device
    assert shares_by_loss(broken, np.full(2, 2.0), relative=False)[0, 1] == 0


@pytest.mark.parametrize(("n", "liars"), [(3, 1), (5, 1), (5, 2), (8, 1), (8, 2)])
def test_a_few_devices_do_not_choose_the_offer_of_all(n, liars):
    """One of eight told 1e6 of each offer but one, and the others took that: errors of trees were
    ten times those of own rows.
    """
    rng = np.random.default_rng(0)
    honest = [0.3, 0.9, 0.5] * rng.uniform(0.8, 1.2, (n - liars, 3))
    losses = np.vstack([honest, np.tile([1e6, 0.0, 1e6], (liars, 1))])
    rows = np.r_[np.full(n - liars, 15.0), np.full(liars, 1e15)]
    found = shares_by_loss(losses, rows, relative=True)[: n - liars]
    assert (found[:, 0] > 0.9).all()
