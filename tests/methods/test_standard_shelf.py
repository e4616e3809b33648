"""The standard shelf for gradient learners: each ends where its equation has its root."""

from functools import partial

import numpy as np
import pytest

from persfl import Linear
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.learners.mlp import MLP
from persfl.learners.network import Network
from persfl.methods import (
    APFL,
    Ditto,
    FedAvg,
    FedAvgFineTuned,
    FedProx,
    LocalTask,
    PerFedAvg,
    PFedMe,
    method_of,
)
from persfl.methods.gtvmin import mean_products
from persfl.sources import clustered_regression

ALL = {"share": 1.0, "step_size": 0.05}


@pytest.fixture(scope="module")
def rows():
    """Devices of unlike sizes: means are weighted by rows."""
    made = clustered_regression(n=8, clusters=2, rows=9, features=3, noise=0.5, seed=2)
    parts = [made[i].take(np.arange(9 - i // 2)) for i in range(8)]
    return Devices.of(parts, quiet=True)


@pytest.fixture(scope="module")
def squares(rows):
    """Twice the means of x x' and x y, and every device's share of the rows."""
    G, b = mean_products(Linear(), rows)
    return 2.0 * G, 2.0 * b, rows.total / rows.total.sum()


def models(method, rows, **settings):
    method = method.set_params(**ALL | settings)
    return np.asarray(method.run(LocalTask(rows, Linear(), seed=0)).models)


def test_fedprox_is_federated_averaging_without_its_pull(rows):
    want = models(FedAvg(), rows, rounds=30)
    np.testing.assert_allclose(models(FedProx(0.0, 1), rows, rounds=30), want)
    near = models(FedProx(1e4, 3), rows, rounds=30)
    assert np.abs(near - near[0]).max() == 0
    assert np.abs(near).max() < 0.1  # held where it began


def test_several_own_steps_before_averaging_are_fedprox_without_its_pull(rows):
    want = models(FedProx(0.0, 3), rows, rounds=10)
    np.testing.assert_allclose(models(FedAvg(local=3), rows, rounds=10), want)
    tuned = models(FedAvgFineTuned(local=3), rows, rounds=10)
    once = models(FedAvgFineTuned(), rows, rounds=10)
    assert np.abs(tuned - once).max() > 1e-3
    with pytest.raises(InputError, match="local must be at least 1"):
        models(FedAvg(local=0), rows, rounds=10)


def test_fedprox_ends_where_proximal_points_are_in_balance(rows, squares):
    """With many own steps w_i is the proximal point of L_i at w."""
    H, b, share = squares
    mu = 2.0
    inverse = np.linalg.inv(H + mu * np.eye(3))
    left = np.eye(3) - np.einsum("n,nij->ij", share, mu * inverse)
    right = np.einsum("n,nij,nj->i", share, inverse, b)
    want = np.linalg.solve(left, right)
    found = models(FedProx(mu, 100), rows, rounds=60)[0]
    np.testing.assert_allclose(found, want, atol=1e-3)


@pytest.mark.parametrize("hessian", [True, False])
def test_per_fedavg_ends_where_its_gradient_is_zero(rows, squares, hessian):
    """Of the mean of L_i(w - a grad L_i(w)), with the Hessian and as if there were none."""
    H, b, share = squares
    a = 0.05
    turn = np.eye(3) - a * H
    front = turn if hessian else np.repeat(np.eye(3)[None], 8, axis=0)
    left = np.einsum("n,nij,njk,nkl->il", share, front, H, turn)
    right = np.einsum("n,nij,njk,nk->i", share, front, np.eye(3) - a * H, b)
    want = np.linalg.solve(left, right)
    found = models(PerFedAvg(a, hessian), rows, rounds=600)
    own = want - a * (np.einsum("nij,j->ni", H, want) - b)
    np.testing.assert_allclose(found, own, atol=1e-3)


def test_apfl_is_federated_averaging_or_own_steps_at_its_ends(rows):
    common = models(APFL(0.0, learn=False), rows, rounds=40)
    np.testing.assert_allclose(common, models(FedAvg(), rows, rounds=40))
    own = models(APFL(1.0, learn=False), rows, rounds=40)
    np.testing.assert_allclose(own, models(Ditto(0.0), rows, rounds=40), atol=1e-12)


def test_apfl_learns_to_follow_the_common_model_where_devices_are_alike():
    made = clustered_regression(n=8, clusters=1, rows=9, features=3, noise=0.5, seed=2)
    found = {
        learn: models(APFL(0.5, learn), made, rounds=150) for learn in (True, False)
    }
    error = {k: ((v - made.true_weights) ** 2).sum(axis=1) for k, v in found.items()}
    assert error[True].mean() < 0.3 * error[False].mean()


def test_pfedme_ends_where_moreau_envelopes_are_in_balance(rows, squares):
    H, b, share = squares
    lam = 3.0
    inverse = np.linalg.inv(H + lam * np.eye(3))
    left = np.eye(3) - lam * np.einsum("n,nij->ij", share, inverse)
    want = np.linalg.solve(left, np.einsum("n,nij,nj->i", share, inverse, b))
    own = np.einsum("nij,nj->ni", inverse, b + lam * want)
    method = PFedMe(lam, steps=60, local=1, rate=0.3)
    np.testing.assert_allclose(models(method, rows, rounds=60), own, atol=2e-3)


def test_settings_that_overshoot_are_refused_in_a_sentence(rows):
    with pytest.raises(
        InputError, match=r"rate \* pull must be at most 1, or the common"
    ):
        models(PFedMe(200.0, rate=0.01), rows)
    with pytest.raises(InputError, match="own must be at most 1. Got 2"):
        models(APFL(2.0), rows)
    with pytest.raises(InputError, match="local must be at least 1. Got 0"):
        models(FedProx(local=0), rows)
    with pytest.raises(InputError, match="pull must be at least 0. Got -1"):
        models(FedProx(-1.0), rows)


@pytest.mark.parametrize(
    "name",
    [
        *("gtvmin", "fedprox", "per-fedavg", "apfl", "pfedme", "cfl", "werner"),
        *("fedem", "mr-mtl", "mocha", "pens", "dac", "fedfomo"),
        *("all-for-one", "clove", "pfedgraph", "cobo"),
    ],
)
def test_networks_take_the_same_steps(name, rows):
    pytest.importorskip("torch")
    net = Network(partial(MLP((3,), "tanh"), 3, 1), loss="squared", epochs=2)
    method = method_of(name, rounds=2)
    few = {"local": 2, "peers": 2}
    has = method.get_params()
    method = method.set_params(**{k: v for k, v in few.items() if k in has})
    models = method.run(LocalTask(rows, net, seed=0)).models
    for model in models:
        for _, part in model if isinstance(model, list) else [(1.0, model)]:
            net.check(part, 3)
