"""Who is near is learned: All-for-one, CLoVE, pFedGraph, CoBo and graphs as it learns them."""

import numpy as np
import pytest
from scipy.optimize import minimize

from persfl import Linear
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.methods import IFCA, AllForOne, CLoVE, CoBo, Ditto, GTVMin, LocalTask
from persfl.methods import PFedGraph as Graphed
from persfl.methods.all_for_one import in_turn, near_weights
from persfl.methods.clove import clusters_of
from persfl.methods.meetings import Meetings
from persfl.methods.pfedgraph import collaboration, onto_simplex
from persfl.proposers.gradient import GradientStep
from persfl.seeds import stream
from persfl.sources import clustered_regression


@pytest.fixture(scope="module")
def rows():
    return clustered_regression(n=24, clusters=2, rows=6, features=4, noise=0.5, seed=4)


def ran(method, rows, **settings):
    task = LocalTask(rows, Linear(), seed=0)
    return np.asarray(method.set_params(**settings).run(task).models)


def error(models, rows):
    return ((models - rows.true_weights) ** 2).sum(axis=1).mean()


@pytest.mark.parametrize("form", ["binary", "continuous"])
def test_all_for_one_weighs_as_its_paper_says(form):
    """One by one, with the paper's ratio of squared norms."""
    rng = np.random.default_rng(0)
    own = rng.normal(size=(5, 3))
    others = own[:, None] + rng.normal(size=(5, 6, 3))
    count = rng.integers(1, 9, size=(5, 7)).astype(float)
    found = near_weights(own, others, count, form)
    for i in range(5):
        weight = [count[i, 0] if form == "binary" else 1.0]
        for j in range(6):
            away = np.linalg.norm(own[i] - others[i, j]) ** 2
            near = max(0.0, 1.0 - away / np.linalg.norm(own[i]) ** 2)
            weight.append(count[i, j + 1] * (near > 0) if form == "binary" else near)
        np.testing.assert_allclose(found[i], np.array(weight) / np.sum(weight))
    still = near_weights(np.zeros((1, 3)), others[:1], count[:1], form)
    assert still.tolist() == [[1.0] + 6 * [0.0]]


def test_nobody_is_asked_twice_at_a_time():
    peers = in_turn(7, np.array([1, 4, 6]), 6, stream(0, "sample"))
    assert all(len(set(row)) == 3 for row in peers.tolist())
    for target, asked in zip([1, 4, 6], peers.T.tolist(), strict=True):
        assert sorted([target, *asked]) == list(range(7))


@pytest.fixture(scope="module")
def more():
    return clustered_regression(n=24, clusters=2, rows=15, features=5, noise=1, seed=4)


@pytest.mark.parametrize(
    ("method", "most"),
    [(Graphed(), 0.5), (CoBo(0.1), 0.5), (GTVMin(graph="learned"), 0.5)],
)
def test_it_is_nearer_to_the_truth_than_own_steps(method, most, more):
    alone = error(ran(Ditto(0.0), more, rounds=300), more)
    assert error(ran(method, more, rounds=150), more) < most * alone


def test_all_for_one_gets_sooner_where_own_steps_end(more):
    alone = error(ran(Ditto(0.0), more, rounds=10), more)
    assert error(ran(AllForOne(), more, rounds=10), more) < 0.6 * alone
    ends = ran(Ditto(0.0), more, rounds=400)
    np.testing.assert_allclose(ran(AllForOne(), more, rounds=150), ends, atol=0.05)


def test_clove_finds_clusters_where_ifca_needs_a_good_start():
    """What its authors claim of linear regression: at once, from any start."""
    found = {CLoVE: 0, IFCA: 0}
    for seed in range(6):
        rows = clustered_regression(n=30, clusters=4, rows=100, features=6, seed=seed)
        for kind in found:
            method = kind(4, rounds=10)
            if kind is IFCA:
                method = method.set_params(share=1.0)
            models = ran(method, rows)
            group = np.unique(models, axis=0, return_inverse=True)[1].ravel()
            pairs = set(zip(group.tolist(), rows.clusters.tolist(), strict=True))
            found[kind] += len(pairs) == len(set(rows.clusters)) == len(set(group))
    assert found[CLoVE] == 6 > found[IFCA]


@pytest.mark.parametrize("lie", [0.0, -1e300, 1e9, 1e300])
@pytest.mark.parametrize("column", [slice(None), 0, 1])
def test_losses_of_one_device_change_no_others_cluster(column, lie):
    """It was a cluster by itself, and all others were one."""
    losses = np.array([[1.0, 9], [1.2, 8], [9, 1.1], [8, 1], [8, 1.2], [1.1, 9]])
    losses[5, column] = lie
    found = clusters_of(losses, stream(0, "clusters"))
    assert found[:5].tolist() == [0, 0, 1, 1, 1]


def test_one_that_is_like_nobody_is_a_cluster_where_devices_are_few():
    losses = np.array([[1.0, 9], [1.2, 8], [9, 1.1]])
    assert clusters_of(losses, stream(0, "clusters")).tolist() == [0, 0, 1]


def test_a_projection_onto_the_simplex_is_the_nearest_point():
    points = np.random.default_rng(1).normal(size=(4, 5))
    found = onto_simplex(points)
    for point, one in zip(points, found, strict=True):
        rule = {"type": "eq", "fun": lambda a: a.sum() - 1}
        far = minimize(
            lambda a, p=point: ((a - p) ** 2).sum(),
            np.full(5, 0.2),
            bounds=[(0, None)] * 5,
            constraints=rule,
        )
        np.testing.assert_allclose(one, far.x, atol=1e-3)


def test_moves_alike_are_averaged_and_others_are_not():
    moves = np.array([[1.0, 0.0], [2.0, 0.1], [-1.0, 0.0], [-3.0, 0.2]])
    share = collaboration(moves, np.ones(4), 0.8)
    assert share[0, 2:].max() == share[2, :2].max() == 0
    np.testing.assert_allclose(share[0, :2], 0.5)
    even = collaboration(moves, np.array([1.0, 2.0, 3.0, 4.0]), 1e9)
    np.testing.assert_allclose(even[1], [0.1, 0.2, 0.3, 0.4])


def test_meetings_tell_clusters_apart(rows):
    fleet = LocalTask(rows, Linear(), seed=0).fleet(GradientStep(0.1))
    meetings = Meetings(fleet, 1.0, 0)
    own = ran(Ditto(0.0), rows, rounds=100)
    meetings.meet(np.zeros_like(own), 0, 1)
    meetings.meet(own, 1, 150)
    alike = (rows.clusters[:, None] == rows.clusters) & ~np.eye(24, dtype=bool)
    other = rows.clusters[:, None] != rows.clusters
    known = meetings.weights
    assert known[alike].mean() > known[other].mean() + 0.5


def test_what_cannot_be_is_refused_in_a_sentence(rows):
    with pytest.raises(InputError, match="form must be one of"):
        ran(AllForOne("soft"), rows)
    with pytest.raises(InputError, match="alpha must be greater than 0"):
        ran(Graphed(0.0), rows)
    with pytest.raises(InputError, match="learn must be greater than 0"):
        ran(CoBo(learn=0.0), rows)


@pytest.mark.parametrize("method", [AllForOne(), CLoVE(1), Graphed(), CoBo()])
def test_one_device_alone_trains_alone(method, rows):
    one = Devices.of([rows[0]], quiet=True)
    assert np.isfinite(ran(method, one, rounds=5)).all()
