"""Private as a method: what it costs, what it refuses, and that noise is where it must be."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from persfl import Devices, Linear, PersonalizedClassifier, PersonalizedRegressor
from persfl.errors import InputError, PersflWarning
from persfl.learners.estimator import Estimator
from persfl.learners.tree import Tree
from persfl.methods import LocalTask, Private
from persfl.methods.private.common_descent import common_descent
from persfl.methods.private.home_finish import Outside, finished_at_home
from persfl.methods.private.private_budget import RunBudget
from persfl.methods.private.private_sums_run import moment_rows, pooled_anchor
from persfl.methods.private.private_units import declared_units, table_ranges
from persfl.methods.private.random_trees import RandomTrees
from persfl.privacy import PrivacyBudget
from persfl.seeds import stream
from persfl.sources import clustered_regression

ALIKE = clustered_regression(n=12, clusters=1, rows=6, features=5, noise=2.0, seed=3)
LEVEL = Linear(intercept=True)


def errors(models, devices=ALIKE):
    """Mean squared error of slopes."""
    slopes = np.asarray(models)[:, : devices.features]
    return float(((slopes - devices.true_weights) ** 2).mean())


def run(method, rows=ALIKE, learner=LEVEL, seed=0):
    """Models in the units of rows."""
    units = method.units(rows, learner, labels=learner.kind == "squared", seed=seed)
    task = LocalTask(units.inside(rows), learner, seed=seed)
    models = np.array(method.run(task).models)
    models[:, : rows.features] *= units.label_scale / units.scale
    return models


def test_with_a_large_budget_joining_helps():
    own = run(Private(epsilon=0.01))  # noise drowns everything: own rows alone
    joined = run(Private(epsilon=1000.0, delta=0.1))
    assert errors(joined) < 0.7 * errors(own)


def test_with_no_budget_to_speak_of_a_device_stays_alone():
    """Noise that drowns everything costs hardly anything, since own rows see that."""
    from persfl.methods import Own

    units = declared_units(ALIKE, table_ranges(ALIKE), labels=True)
    task = LocalTask(units.inside(ALIKE), LEVEL)
    own = np.array(Own().run(task).models)
    own[:, :5] *= units.label_scale / units.scale
    assert errors(run(Private(epsilon=0.01))) < 1.15 * errors(own)


@pytest.mark.parametrize("base", ["mixed", "paper", "kin"])
def test_bases_run_on_noised_sums(base):
    assert np.isfinite(run(Private(epsilon=8.0, base=base))).all()


def test_the_same_seed_gives_the_same_models_and_another_another():
    a, b, c = (run(Private(epsilon=50.0), seed=k) for k in (1, 1, 2))
    assert (a == b).all()
    assert (a != c).any()


def test_what_is_told_hangs_on_the_noise_and_own_models_on_own_rows():
    """One device's last row changes: others see it through noise alone."""
    rows = clustered_regression(n=3, clusters=1, rows=30, features=2, noise=0.1, seed=0)
    X = rows.X.copy()
    X[-1] += 0.5
    other = Devices(X, rows.y, rows.weight, rows.start, rows.ids)
    ranges = {"0": [-4, 4], "1": [-4, 4], "label": [-20, 20]}
    private = Private(epsilon=1.0, ranges=ranges)
    a, b = run(private, rows), run(private, other)
    assert np.abs(a[2] - b[2]).max() > 0
    assert np.abs(a[:2] - b[:2]).max() < 0.05


def test_classes_go_by_steps():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 3))
    y = (X @ [2.0, -1.0, 0.5] > 0) * 1
    devices = np.repeat(np.arange(12), 20)
    learned = PersonalizedClassifier(method=Private(epsilon=8.0), holdout=0)
    learned.fit(X, y, devices=devices)
    fresh = rng.normal(size=(600, 3))
    said = learned.predict(fresh, devices=np.repeat(np.arange(12), 50))
    assert np.mean(said == (fresh @ [2.0, -1.0, 0.5] > 0)) > 0.85


def test_a_method_whose_plan_does_not_fit_says_what_would():
    learner = Linear("logistic", intercept=True)
    rows = replace_labels(ALIKE)
    with pytest.raises(InputError, match=r"asks each device about 1,100 .* asks 20"):
        run(Private(base="paper"), rows, learner)


def replace_labels(rows):
    return Devices(rows.X, (rows.y > 0) * 1.0, rows.weight, rows.start, rows.ids)


def test_boosting_is_refused_with_a_sentence():
    from sklearn.ensemble import GradientBoostingRegressor

    model = PersonalizedRegressor(GradientBoostingRegressor(), method=Private())
    with pytest.raises(InputError, match="no budget pays"):
        model.fit(ALIKE.X, ALIKE.y, devices=np.repeat(np.arange(12), 6))


def test_trees_ask_random_questions_and_leaves_are_noised():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(1000, 2))
    y = np.sign(X[:, 0]) + 0.5 * rng.normal(size=1000)
    rows = Devices(X, y, np.ones(1000), np.arange(0, 1001, 5), range(200))
    task = LocalTask(rows, Tree(max_depth=3))
    fresh = rng.uniform(-1, 1, size=(50, 2))

    def missed(method):
        models = method.run(task).models
        told = [
            sum(share * Tree().predict(tree, fresh) for share, tree in mix)
            if isinstance(mix, list)
            else Tree().predict(mix, fresh)
            for mix in models
        ]
        return float(np.mean((np.array(told) - np.sign(fresh[:, 0])) ** 2))

    assert missed(Private(epsilon=8.0)) < 0.98 * missed(Private(epsilon=0.01))


@pytest.mark.parametrize("forest", [False, True])
def test_trees_and_forests_of_classes_learn_from_class_counts(forest):
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(200, 2))
    y = np.where(X[:, 0] > 0.3, 2, X[:, 1] > 0) + 0.0
    rows = Devices(X, y, np.ones(200), np.arange(0, 201, 10), range(20))
    small = {"n_estimators": 1} if forest else {}
    family = RandomForestClassifier if forest else DecisionTreeClassifier
    learner = Estimator(family(max_depth=3, **small))
    task = LocalTask(rows, learner, classes=3)
    fresh = rng.uniform(-1, 1, size=(200, 2))
    truth = np.where(fresh[:, 0] > 0.3, 2, fresh[:, 1] > 0)

    def right(epsilon):
        hits = []
        for mix in Private(epsilon=epsilon).run(task).models:
            parts = mix if isinstance(mix, list) else [(1.0, mix)]
            said = np.zeros((200, 3))
            for share, tree in parts:
                chances, known = learner.chances(tree, fresh)
                said[:, known.astype(int)] += share * chances
            hits.append(np.mean(said.argmax(axis=1) == truth))
        return float(np.mean(hits))

    assert right(100.0) > right(0.01) + 0.02


def test_random_trees_take_columns_as_they_are():
    model = PersonalizedRegressor(Tree(), method=Private(), units="shared")
    with pytest.raises(InputError, match="units must be 'raw', or left out"):
        model.fit(ALIKE.X, ALIKE.y, devices=np.repeat(np.arange(12), 6))


def test_random_trees_do_not_hang_on_rows():
    low, high = np.zeros(2), np.ones(2)
    trees = RandomTrees.drawn(low, high, 3, stream(0, "trees"))
    learner = Tree(max_depth=3)
    learner.check(trees.models(learner, np.zeros((1, 64)))[0][1], 2)
    places = trees.places(np.random.default_rng(0).uniform(size=(40, 2)))
    assert (places // 8 == np.arange(8)).all()


def test_the_report_says_what_was_promised_and_when_alone_is_better():
    rng = np.random.default_rng(5)
    n, each = 8, 40
    w = rng.normal(size=(n, 3)) * 3
    X = rng.normal(size=(n * each, 3))
    y = np.einsum("rd,rd->r", X, np.repeat(w, each, axis=0))
    model = PersonalizedRegressor(method=Private(epsilon=2.0))
    model.fit(X, y, devices=np.repeat(np.arange(n), each))
    assert any("at most" in note and "epsilon 2" in note for note in model.notes_)
    assert any("as if owners had declared" in note for note in model.notes_)
    assert any("would be run, without protection" in note for note in model.notes_)


def test_where_joining_is_worse_that_is_said(monkeypatch):
    from persfl.evaluation.verdicts import Worth

    real = Worth.fleet
    monkeypatch.setattr(Worth, "fleet", lambda self: real(self)._replace(says="hurts"))
    model = PersonalizedRegressor(method=Private(epsilon=1.0))
    with pytest.warns(PersflWarning, match="worse than staying alone"):
        model.fit(ALIKE.X, ALIKE.y, devices=np.repeat(np.arange(12), 6))
    assert any("worse than staying alone" in note for note in model.notes_)


def test_noised_ranges_find_units_of_many_rows():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(2010, 10, 20_000), rng.random(20_000) < 0.3])
    rows = Devices(
        X, 50 + X[:, 1], np.ones(20_000), np.arange(0, 20_001, 5000), range(4)
    )
    units = Private(epsilon=8.0, ranges="noised").units(
        rows, LEVEL, labels=True, seed=0
    )
    assert abs(units.mean[0] - 2010) < 20
    assert 5 < units.scale[0] < 40
    assert abs(units.mean[1] - 0.3) < 0.1


def test_ranges_must_be_complete():
    with pytest.raises(InputError, match="none of '1'"):
        run(Private(ranges={"0": [0, 1], "label": [0, 1]}), ALIKE)


def test_moments_that_no_rows_have_become_those_of_some():
    odd = np.diag([-3.0, 2.0, -1.0])
    made = moment_rows(odd[None])
    assert np.isfinite(made.X).all()
    assert made.weight.sum() == pytest.approx(1.0)


def test_the_model_of_all_others_leaves_a_device_out():
    told = np.random.default_rng(0).normal(size=(3, 4, 4))
    told = told @ told.transpose(0, 2, 1) + 50 * np.eye(4)
    before = pooled_anchor(told, 0.1, True)
    told[0] += 7.0
    after = pooled_anchor(told, 0.1, True)
    np.testing.assert_allclose(before[0], after[0], rtol=1e-12)
    assert np.abs(before[1] - after[1]).max() > 1e-6


def test_a_single_row_keeps_its_own_model():
    rows = Devices.of([([[1.0]], [2.0])], quiet=True)
    told = Outside(np.full((1, 2), 99.0))
    assert abs(finished_at_home(LEVEL, rows, told, 0)).max() < 3


def network():
    pytest.importorskip("torch")
    from persfl.learners.named import learner_named

    small = {"hidden": [2]}
    return learner_named("mlp", features=2, classes=0, settings=small)


def test_networks_take_private_steps():
    learner = network()
    rows = clustered_regression(n=2, rows=5, features=2, seed=0)
    spend = RunBudget(PrivacyBudget(epsilon=3.0), 0)
    model = common_descent(learner, rows, "auto", 2, spend)
    assert np.isfinite(model).all()
    assert model.shape == (learner.size(2),)


@pytest.mark.slow  # fits of networks, thrice a device
def test_networks_are_finished_at_home():
    rows = clustered_regression(n=2, rows=10, features=2, seed=0)
    private = Private(epsilon=3.0, answers=2)
    models = private.run(LocalTask(rows, network())).models
    assert np.isfinite(np.array(models)).all()
