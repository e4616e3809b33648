"""The compiled tree grows what scikit-learn grows."""

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

from persfl import Best, Data, LoopFleet, Refit, Tree, Uniform, personalize
from persfl.errors import CannotMix, InputError
from persfl.seeds import stream
from persfl.sources import clustered_regression


def rows(seed, n=60, d=4, integers=False):
    rng = np.random.default_rng(seed)
    X = (
        (rng.integers(0, 6, (n, d)) * 1.0)
        if integers
        else rng.standard_normal((n, d)).astype(np.float32).astype(np.float64)
    )
    return Data(
        X, X @ rng.standard_normal(d) + rng.standard_normal(n), rng.uniform(0.1, 2.0, n)
    )


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("depth", [1, 3, 6])
def test_it_is_scikit_learns_tree(depth, integers, compiled, uncompiled):
    if not compiled:
        uncompiled()
    same = []
    for seed in range(15):
        data = rows(seed, integers=integers)
        ours = Tree(depth).fit(data, stream(seed))
        theirs = DecisionTreeRegressor(max_depth=depth, random_state=seed).fit(
            data.X, data.y, sample_weight=data.weight
        )
        fresh = rows(seed + 100, n=300, integers=integers).X
        # Features may tie (small nodes; few distinct values), and then the choice is random in
        # both: the fit is equally good.
        assert np.isclose(
            Tree(depth).loss(ours, data),
            np.average((theirs.predict(data.X) - data.y) ** 2, weights=data.weight),
            rtol=0.03,
        )
        if depth == 1 and not integers:
            assert np.allclose(Tree(depth).predict(ours, fresh), theirs.predict(fresh))
        if depth == 3 and not integers:
            assert len(ours.feature) == theirs.tree_.node_count
            same.append(
                np.isclose(
                    Tree(depth).predict(ours, fresh), theirs.predict(fresh)
                ).mean()
            )
    assert not same or (np.median(same) == 1 and np.mean(same) > 0.95)


def test_ties_are_broken_at_random_not_by_position():
    X = np.repeat(np.array([[0.0], [1.0]]), 8, axis=1)
    chosen = {
        int(Tree(1).fit(Data(X, np.array([0.0, 1.0])), stream(seed)).feature[0])
        for seed in range(60)
    }
    assert chosen == set(range(8))


def test_constant_rows_make_a_leaf():
    for data in (
        Data(np.ones((5, 2)), np.arange(5.0)),
        Data(np.eye(5), np.ones(5)),
        Data(np.ones((1, 1)), np.ones(1)),
    ):
        model = Tree().fit(data, stream(0))
        assert len(model.feature) == 1
        assert np.allclose(Tree().predict(model, data.X), data.y.mean())


def test_in_the_loop():
    devices = clustered_regression(n=20, rows=10, features=3, seed=0)
    public = np.random.default_rng(0).standard_normal((30, 3))
    fleet = LoopFleet(
        devices, learner=Tree(3), proposer=Refit(public), targets=[0], start="zeros"
    )
    losses = [
        float(round_.loss[0])
        for round_ in personalize(fleet, sampler=Uniform(10), adopter=Best(), rounds=20)
    ]
    assert losses[-1] < 0.5 * losses[0]


def test_a_forged_tree_is_refused():
    good = Tree().fit(rows(0), stream(0))
    assert Tree().check(list(good), 4)
    with pytest.raises(InputError, match="five arrays"):
        Tree().check("tree", 4)
    for part, position, value in [
        (0, 0, 9),
        (0, 0, -7),
        (2, 0, 0),
        (2, 0, 99),
        (3, 1, -5),
        (1, 0, np.nan),
        (4, 0, np.inf),
        (2, 0, 2),
    ]:
        forged = [np.array(array) for array in good]
        forged[part][position] = value
        with pytest.raises(InputError, match="not a sound tree"):
            Tree().check(forged, 4)
    with pytest.raises(InputError, match="not a sound tree"):
        Tree().check([array[:-1] for array in good], 4)
    with pytest.raises(CannotMix, match="cannot be averaged"):
        Tree().mix([good], np.ones(1))
