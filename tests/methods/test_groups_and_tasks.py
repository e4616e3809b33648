"""Clusters that are found, mixtures, models that are tied: CFL, Werner, FedEM, MR-MTL, MOCHA."""

import numpy as np
import pytest
from published import published

from persfl import Linear, PersonalizedClassifier
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.methods import CFL, MRMTL, Ditto, FedEM, LocalTask, Mocha, Werner
from persfl.methods.fedem import mixture
from persfl.methods.graphs import Graph
from persfl.methods.gtvmin import graph_fits, mean_products
from persfl.methods.mocha import relation
from persfl.methods.werner import near_mean
from persfl.runs import load_model, save_model
from persfl.sources import clustered_regression


def ran(method, rows, **settings):
    task = LocalTask(rows, Linear(), seed=0)
    return np.asarray(method.set_params(**settings).run(task).models)


def error(models, rows):
    return ((models - rows.true_weights) ** 2).sum(axis=1).mean()


def test_cfl_finds_four_clusters_in_splits_of_splits():
    """The authors' code numbers members within a cluster: its second splits mix up devices."""
    rows = clustered_regression(
        n=40, clusters=4, rows=12, features=4, noise=0.1, seed=5
    )
    models = ran(CFL(after=10), rows, rounds=300, step_size=0.1)
    found = np.unique(models.round(9), axis=0, return_inverse=True)[1]
    for cluster in range(4):
        assert len(set(found[rows.clusters == cluster])) == 1
    assert len(set(found)) == 4
    assert error(models, rows) < 0.01


def test_cfl_leaves_devices_of_one_truth_together():
    rows = clustered_regression(
        n=20, clusters=1, rows=10, features=3, noise=0.3, seed=1
    )
    models = ran(CFL(), rows, rounds=100)
    assert len(np.unique(models, axis=0)) == 1


def test_werners_mean_takes_in_what_is_near():
    own = np.zeros((1, 2))
    others = np.array([[[0.2, 0.0], [-0.1, 0.1], [5.0, 5.0], [5.0, 5.2]]])
    v = near_mean(own, others, "groups", 3)
    assert np.abs(v).max() < 0.2
    everybody = near_mean(own, others, 1.0, 1)
    assert np.abs(everybody).max() > 0.5


@pytest.mark.parametrize(("quantile", "most"), [("groups", 0.6), (0.2, 0.25)])
def test_werner_is_near_the_truth_where_own_rows_are_few(quantile, most):
    """Its authors' order: near the truth, far better than alone (MNIST 75 beside 71 and 77)."""
    rows = clustered_regression(n=30, clusters=2, rows=4, features=5, noise=0.5, seed=3)
    found = error(ran(Werner(quantile), rows, rounds=150), rows)
    alone = error(ran(Ditto(0.0), rows, rounds=150), rows)
    assert found < most * alone


def test_fedem_finds_components_and_shares():
    """Every device has rows of both components; how many differs."""
    rng = np.random.default_rng(0)
    truth = np.array([[2.0, 1.0], [-2.0, 1.0]])
    X = rng.normal(size=(20, 60, 2))
    first = np.linspace(0.1, 0.9, 20)
    which = (rng.random((20, 60)) > first[:, None]).astype(int)
    y = (X * truth[which]).sum(axis=2) + 0.1 * rng.normal(size=which.shape)
    rows = Devices.of([(X[i], y[i]) for i in range(20)], quiet=True)
    found = mixture(Linear(), rows, told=2, rounds=200, step_size=0.1)
    order = np.argsort(-found.models[:, 0])
    np.testing.assert_allclose(found.models[order], truth, atol=0.05)
    actual = 1.0 - which.mean(axis=1)
    np.testing.assert_allclose(found.shares[:, order[0]], actual, atol=0.08)


def test_fedem_of_classes_mixes_chances_and_is_kept(tmp_path):
    rows = clustered_regression(
        n=10, clusters=2, rows=40, features=2, noise=0.1, seed=0
    )
    y = np.where(rows.y > 0, "yes", "no")
    method = FedEM(2, rounds=60)
    model = PersonalizedClassifier(method=method, holdout=0)
    model.fit(rows.X, y, devices=rows.owner)
    chances = model.predict_proba(rows.X, devices=rows.owner)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert (model.predict(rows.X, devices=rows.owner) == y).mean() > 0.95
    again = load_model(save_model(model, tmp_path / "run"))
    same = again.predict_proba(rows.X, devices=rows.owner)
    np.testing.assert_array_equal(same, chances)


def test_more_models_than_devices_are_refused_in_a_sentence():
    rows = clustered_regression(n=3, rows=6, features=2, seed=0)
    with pytest.raises(
        InputError, match=r"models must be at most 3 \(3 devices\). Got 4"
    ):
        ran(FedEM(4), rows)


def test_mr_mtl_is_a_pull_along_the_complete_graph():
    """pull / 2 * sum ||w_i - mean||^2 is pull / (2 n) over all pairs."""
    rows = clustered_regression(n=8, clusters=2, rows=6, features=3, noise=0.5, seed=2)
    pairs = np.array([(i, j) for i in range(8) for j in range(i + 1, 8)])
    every = Graph(8, pairs, np.ones(len(pairs)))
    want = graph_fits(Linear(), rows, every, alpha=2.0 / 16, penalty="squared")
    found = ran(MRMTL(2.0), rows, rounds=800, step_size=0.1)
    np.testing.assert_allclose(found, want, atol=1e-3)


def test_mocha_ends_where_models_and_their_covariance_agree():
    rows = clustered_regression(n=6, clusters=2, rows=8, features=3, noise=0.5, seed=2)
    found = ran(Mocha(0.05), rows, rounds=1500, step_size=0.1)
    G, b = mean_products(Linear(), rows)
    tied = np.kron(np.linalg.inv(relation(found)), np.eye(3))
    left = 0.05 * tied
    for i in range(6):
        left[3 * i : 3 * i + 3, 3 * i : 3 * i + 3] += G[i]
    want = np.linalg.solve(left, b.ravel()).reshape(6, 3)
    np.testing.assert_allclose(found, want, atol=5e-3)


def test_a_covariance_of_models_is_never_singular():
    assert np.linalg.eigvalsh(relation(np.ones((5, 2)))).min() > 0
    np.testing.assert_allclose(relation(np.zeros((4, 2))), np.eye(4) / 4)


@pytest.mark.parametrize(("method", "most"), [(MRMTL(0.3), 0.1), (Mocha(), 0.7)])
def test_tied_models_are_nearer_to_the_truth_than_own_ones(method, most):
    rows = clustered_regression(
        n=30, clusters=1, rows=5, features=5, deviation=0.3, noise=0.3, seed=1
    )
    found = error(ran(method, rows, rounds=300), rows)
    assert found < most * error(ran(Ditto(0.0), rows, rounds=300), rows)


def test_mr_mtl_of_school_without_noise():
    """.02394 is what its authors print with privacy; own rows alone without noise have .0229."""
    table = published("school.csv")
    X = table.filter(regex=r"^x\d").to_numpy(float)[:, :-1]
    y = (table.score.to_numpy() - 1) / 69
    owner = table.school.to_numpy()
    learn = (table.split0 == "train").to_numpy()
    spread = X[learn].std(axis=0)
    Z = (X - X[learn].mean(axis=0)) / spread
    size = y[learn].std()
    rows = Devices.grouped(Z[learn], (y[learn] - 0.5) / size, owner[learn], range(139))
    task = LocalTask(rows, Linear(intercept=True), seed=0)
    models = MRMTL(1.0, rounds=200).run(task).models[owner]
    said = ((Z * models[:, :-1]).sum(axis=1) + models[:, -1]) * size + 0.5
    assert np.mean((said - y)[~learn] ** 2) < 0.0229
