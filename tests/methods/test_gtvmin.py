"""GTVMin and network lasso: the block models of its authors, graphs that are given or found."""

from dataclasses import replace

import numpy as np
import pytest
from published import published

from persfl import Linear, PersonalizedRegressor
from persfl.devices import Devices, offsets
from persfl.errors import InputError
from persfl.lab.comparison_specs import load_comparison
from persfl.lab.setting_choice import (
    Candidate,
    EqualTerms,
    device_errors,
    linear_learner,
)
from persfl.methods import GTVMin, LocalTask, Own
from persfl.methods.contract import _Sealed
from persfl.methods.graphs import Graph, graph_of, nearest
from persfl.methods.gtvmin import Pull, graph_fits, mean_products
from persfl.runs import load_model, save_model
from persfl.sources import clustered_regression

PAIRS = tuple((i, j) for i in range(12) for j in range(i) if i % 2 == j % 2)


@pytest.fixture(scope="module")
def rows():
    return clustered_regression(n=12, clusters=2, rows=8, features=3, noise=0.1, seed=0)


def block_model(sizes, weights, labelled, pout, seed):
    """Nodes in clusters; 5 rows of 2 features without noise at some of them."""
    rng = np.random.default_rng(seed)
    cluster = np.repeat(np.arange(len(sizes)), sizes)
    n = len(cluster)
    chance = np.where(cluster[:, None] == cluster, 0.5, pout)
    pairs = np.argwhere(np.triu(rng.random((n, n)) < chance, 1))
    X = rng.normal(size=(n, 5, 2))
    y = np.einsum("nrd,nd->nr", X, np.asarray(weights)[cluster])
    known = np.zeros(n, dtype=bool)
    known[rng.permutation(n)[: round(labelled * n)]] = True
    learn = Devices(
        X[known].reshape(-1, 2),
        y[known].ravel(),
        np.ones(5 * known.sum()),
        offsets(5 * known),
        range(n),
    )
    return learn, Graph(n, pairs, np.ones(len(pairs))), X, y, known


@pytest.mark.parametrize(
    ("penalty", "alpha", "least", "most"),
    # Its authors print 1.06e-5 and .0633 (their README). Their loss is a sum over 5 rows, and
    # their squared penalty a quarter of ours: lambda .01 and .05 are these alphas.
    [("norm", 0.01 / 5, 4e-6, 1.3e-5), ("squared", 0.05 / 20, 0.04, 0.08)],
)
def test_two_clusters_of_a_block_model(penalty, alpha, least, most):
    truth = [(2.0, 2.0), (-2.0, 2.0)]
    for seed in (0, 1):
        told = block_model([100, 100], truth, 0.4, 0.01, seed)
        learn, graph, X, y, known = told
        models = graph_fits(Linear(), learn, graph, alpha=alpha, penalty=penalty)
        missed = (np.einsum("nrd,nd->nr", X, models) - y) ** 2
        assert least < missed[~known].mean() < most


def test_five_clusters_of_a_block_model():
    """Its authors print 8.99e-6 (20 % labelled); clusters have 10 to 150 nodes."""
    rng = np.random.default_rng(3)
    truth = rng.uniform(size=(5, 2))
    told = block_model([70, 10, 50, 100, 150], truth, 0.2, 0.001, 3)
    learn, graph, X, y, known = told
    models = graph_fits(Linear(), learn, graph, alpha=0.01 / 5, penalty="norm")
    missed = (np.einsum("nrd,nd->nr", X, models) - y) ** 2
    assert missed[~known].mean() < 2e-5


def test_the_linear_set_comes_out_as_measured_elsewhere():
    """Other code, on ten other seeds: .0362 with 4 nearest own models beside .049 of own rows."""
    there, _ = load_comparison("compare").there(None)
    data = next(one for one in there.sets if one.name == "linear")
    errors = {GTVMin(): [], Own(): []}
    learner = linear_learner(0)
    for seed in range(6):
        dealt = data.dealt(seed)
        for method, mine in errors.items():
            one = Candidate("shared", "shared", method)
            answer = EqualTerms(seed=seed).answer(one, dealt, learner)
            mine.append(np.mean(device_errors(answer, dealt, learner)))
    gain = np.mean(errors[GTVMin()]) / np.mean(errors[Own()])
    assert gain == pytest.approx(0.0362 / 0.049, abs=0.05)


@pytest.mark.parametrize("penalty", ["squared", "norm"])
def test_steps_lead_where_the_exact_solution_is(rows, penalty):
    """As over a federation, where rows are not in one place."""
    task = LocalTask(rows, Linear(), seed=1)
    method = GTVMin(0.2, penalty=penalty, graph=PAIRS, rounds=300, step_size=0.1)
    exact = method.run(task).models
    near = method.run(_Sealed(task)).models
    np.testing.assert_allclose(near, exact, atol=2e-3)


def test_a_strong_norm_makes_clusters_equal_and_none_leaves_them_alone(rows):
    strong = GTVMin(5.0, penalty="norm", graph=PAIRS).run(LocalTask(rows, Linear()))
    for side in (0, 1):
        models = strong.models[side::2]
        assert np.ptp(models, axis=0).max() < 1e-4
    alone = GTVMin(0.0, graph=PAIRS).run(LocalTask(rows, Linear()))
    each = [Linear().fit(rows[i], None) for i in range(12)]
    np.testing.assert_allclose(alone.models, each, atol=1e-6)


def test_pulling_is_the_least_of_distance_and_penalty():
    graph = Graph(3, np.array([[0, 1], [1, 2]]), np.array([1.0, 2.0]))
    models = np.array([[0.0, 1.0], [2.0, 0.0], [5.0, 5.0]])
    for penalty, size in (
        ("squared", lambda u: (u**2).sum()),
        ("norm", np.linalg.norm),
    ):
        pull = Pull(graph, penalty, 0.3)
        for _ in range(20):
            found = pull(models)

        def whole(w, size=size):
            edges = zip(graph.pairs, graph.weight, strict=True)
            apart = sum(a * size(w[i] - w[j]) for (i, j), a in edges)
            return 0.5 * ((w - models) ** 2).sum() + 0.3 * apart

        rng = np.random.default_rng(0)
        near = [whole(found + 1e-2 * rng.normal(size=found.shape)) for _ in range(50)]
        assert whole(found) < min(near)


def test_a_graph_comes_from_a_file_a_text_or_a_tuple(tmp_path):
    file = tmp_path / "graph.csv"
    file.write_text("device,peer,weight\nann,bob,2\nbob,cyn,0.5\n")
    ids = ["ann", "bob", "cyn"]
    told = [str(file), '[["ann", "bob", 2], ["bob", "cyn", 0.5]]']
    for one in (*told, (("bob", "ann", 2), ("cyn", "bob", 0.5))):
        graph = graph_of(one, ids)
        assert graph.pairs.tolist() == [[0, 1], [1, 2]]
        assert graph.weight.tolist() == [2.0, 0.5]
    file.write_text("device,peer\n1,2\n")
    assert graph_of(str(file), [1, 2]).pairs.tolist() == [
        [0, 1]
    ]  # ids that are numbers


@pytest.mark.parametrize(
    ("graph", "says"),
    [
        (
            (("a", "d"),),
            "the graph names 'd', which is no device. Known: 'a', 'b', 'c'.",
        ),
        ((("a", "a"),), "the graph joins 'a' with itself. Leave that out."),
        (
            (("a", "b", -1),),
            "weights of a graph must be numbers above 0. Got -1 for 'a' and 'b'.",
        ),
        ((("a",),), "a graph is of pairs of devices"),
        ("[[1,", "graph must be JSON such as"),
        (
            "no such file",
            "graph must be 'nearest', 'learned', pairs of devices",
        ),
    ],
)
def test_a_graph_that_cannot_be_is_refused_in_a_sentence(graph, says):
    with pytest.raises(InputError) as refused:
        graph_of(graph, ["a", "b", "c"])
    assert says in str(refused.value)


def test_bad_settings_and_rows_are_refused_in_a_sentence(rows):
    task = LocalTask(rows, Linear())
    with pytest.raises(InputError, match="penalty must be one of 'squared', 'norm'"):
        GTVMin(penalty="l1").run(task)
    with pytest.raises(InputError, match="alpha must be at least 0"):
        GTVMin(-1.0).run(task)
    with pytest.raises(InputError, match="names 99, which is no device"):
        GTVMin(graph=((0, 99),)).run(task)
    start = np.append(rows.start, rows.start[-1])
    more = Devices(rows.X, rows.y, rows.weight, start, range(13))
    with pytest.raises(
        InputError, match="device 12 has no rows to find its neighbours"
    ):
        GTVMin().run(LocalTask(more, Linear()))
    given = GTVMin(graph=((0, 12),)).run(LocalTask(more, Linear())).models
    np.testing.assert_allclose(given[12], given[0], atol=1e-6)


def test_one_device_alone_has_no_neighbours(rows):
    one = Devices.of([rows[0]], quiet=True)
    found = GTVMin().run(LocalTask(one, Linear())).models
    np.testing.assert_allclose(found[0], Linear().fit(rows[0], None), atol=1e-6)
    assert len(nearest(np.zeros((1, 2)), 4).pairs) == 0


def test_a_graph_as_text_is_kept_with_the_model(rows, tmp_path):
    method = GTVMin(graph="[[0, 1], [1, 2]]")
    model = PersonalizedRegressor(method=method, holdout=0)
    model.fit(rows.X, rows.y, devices=rows.owner)
    again = load_model(save_model(model, tmp_path / "run"))
    assert again.get_params()["method"] in (method, "gtvmin", replace(method))


def test_weather_stations_come_out_as_in_the_course_of_its_authors():
    """53.22499740527877 by their 100 steps (Assignment 3); solved exactly other code has 50.7."""
    table = published("fmi.csv")
    X = table.filter(regex=r"^t(max|min)_\d").to_numpy()
    y = table.y_tmax.to_numpy()
    owner = table.station.to_numpy()
    where = table.groupby("station")[["latitude", "longitude"]].first().to_numpy()
    graph = nearest(where, 4)
    assert len(graph.pairs) == 486
    learn = (table.split == "train").to_numpy()
    rows = Devices.grouped(X[learn], y[learn], owner[learn], range(192))

    def missed(models):
        return np.mean(((X * models[owner]).sum(axis=1) - y)[~learn] ** 2)

    G, b = mean_products(Linear(), rows)
    draw = np.random.RandomState(42)
    w = np.stack([draw.uniform(-1, 1, (10, 1))[:, 0] for _ in range(192)])
    for _ in range(100):
        slope = np.einsum("nij,nj->ni", G, w) - b + graph.laplacian() @ w
        w = w - 2e-4 * slope
    assert missed(w) == pytest.approx(53.22499740527877, abs=1e-6)
    told = tuple((int(i), int(j)) for i, j in graph.pairs)
    exact = GTVMin(1.0, graph=told).run(LocalTask(rows, Linear())).models
    assert missed(exact) == pytest.approx(50.7, abs=0.05)
