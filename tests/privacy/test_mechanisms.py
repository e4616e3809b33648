"""Noise: where it comes from, what it is like, and that no row adds more than its clip."""

import numpy as np
import pytest
from scipy.stats import kstest

from persfl import Data, Linear
from persfl.errors import InputError
from persfl.privacy import mechanisms as m
from persfl.privacy.noised_spread import spread_room, told_spread
from persfl.privacy.secure_noise import (
    FINE,
    SeededNoise,
    SystemNoise,
    normals,
    whole_steps,
)
from persfl.seeds import stream


class NoNoise:
    """Words that come to a noise of nearly 0."""

    def words(self, count):
        return np.full(count, 2**64 - 1, dtype=np.uint64)


def source(k=0):
    return SeededNoise(stream(k, "test"))


def test_noise_is_normal_and_never_the_same():
    a, b = (normals(SystemNoise(), 20_000) for _ in range(2))
    assert kstest(a, "norm").pvalue > 1e-7
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.05
    assert not (a == b).any()


def test_tails_are_as_long_as_they_should_be():
    class Tail:
        def words(self, count):
            return np.zeros(count, dtype=np.uint64)

    assert 11 < abs(normals(Tail(), 1)[0]) < 13  # a chance of 2**-107


def test_system_noise_takes_no_seed():
    np.random.seed(0)  # noqa: NPY002
    a = normals(SystemNoise(), 4)
    np.random.seed(0)  # noqa: NPY002
    assert (a != normals(SystemNoise(), 4)).all()


def test_what_leaves_is_whole_steps_whatever_the_rows():
    rows = np.random.default_rng(0).normal(size=(30, 4)) * np.pi
    told = m.noised_sum(rows, 2.0, 1.7, SystemNoise())
    step = 2.0 * 1.7 * FINE
    assert (told == np.rint(told / step) * step).all()


def test_cutting_to_steps_lengthens_nothing():
    rows = np.random.default_rng(1).normal(size=(500, 7))
    rows = m.clipped(rows * 100, 3.0 * (1 - 1e-9))
    steps = whole_steps(rows, 1e-3)
    assert ((steps.astype(object) ** 2).sum(axis=1) <= 3000**2).all()


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_no_row_is_longer_than_its_clip(scale):
    rows = np.random.default_rng(2).normal(size=(50, 3)) * scale
    assert (np.linalg.norm(m.clipped(rows, 1.0), axis=1) <= 1.0 + 1e-12).all()


def test_a_row_that_is_no_number_does_not_show():
    good = np.ones((5, 2))
    odd = np.vstack([good, [[np.nan, 1.0]], [[np.inf, -np.inf]]])
    assert (
        m.noised_sum(good, 9, 1, source()) == m.noised_sum(odd, 9, 1, source())
    ).all()


def _mechanisms(data):
    """Every mechanism without its noise, as one vector, and how far one row may move it."""
    quiet = NoNoise()
    d = data.X.shape[1]
    model = np.linspace(-1, 1, d + 1)
    losses = (data.y[:, None] - data.X @ np.ones((d, 3))) ** 2
    leaves = (data.X[:, [0, -1]] > 0).astype(int)
    clip = m.product_clip(d)
    told = m.noised_products(data, clip, 1.0, quiet)
    at = np.triu_indices(d + 2)
    root = np.where(at[0] == at[1], 1.0, np.sqrt(2.0))
    half = m.COUNTING
    gradient = m.noised_gradient(Linear(intercept=True), model, data, 2.0, 1.0, quiet)
    counted = np.append(np.ones(len(model)), 2.0 * half)
    fitted = m.noised_losses(losses, 4.0, 1.0, quiet)
    lost = np.append(np.ones(3), 4.0 * half)
    grown = m.noised_leaves(leaves, data.y[:, None], (2, 4), 1.5, 1.0, quiet)
    classes = np.clip(np.rint(data.y), 0, 2).astype(int)
    by_class = m.noised_class_leaves(leaves, classes, (3, 2, 4), 1.0, quiet)
    spread = told_spread(np.column_stack([data.X, data.y]), 1.0, quiet)
    return {
        "class leaves": (by_class.ravel(), np.sqrt(2)),
        "spread": (spread, spread_room(d + 1)),
        "products": (told.matrix[at] * root, clip**2),
        "gradient": (gradient * counted, 2.0 * np.hypot(1, half)),
        "losses": (fitted * lost, 4.0 * np.sqrt(3 + half**2)),
        "leaves": (
            np.concatenate([grown[0], grown[1] * 1.5 * half]),
            1.5 * np.sqrt(2 * (1 + half**2)),
        ),
    }


@pytest.mark.parametrize("seed", range(20))
def test_one_row_more_moves_nothing_further_than_noise_is_made_for(seed):
    rng = np.random.default_rng(seed)
    size = 10.0 ** rng.integers(-2, 6)
    X, y = rng.normal(size=(12, 3)), rng.normal(size=12)
    X[-1], y[-1] = X[-1] * size, y[-1] * size
    both = Data(X, y), Data(X[:-1], y[:-1])
    more, fewer = (_mechanisms(data) for data in both)
    for name, (told, most) in more.items():
        far = np.linalg.norm(told - fewer[name][0])
        assert far <= most * (1 + 1e-5), name


def test_gradients_of_rows_sum_to_the_gradient():
    rng = np.random.default_rng(5)
    data = Data(rng.normal(size=(9, 3)), (rng.random(9) > 0.5) * 1.0)
    learner = Linear("logistic", intercept=True)
    model = rng.normal(size=4)
    rows = m.row_gradients(learner, model, data)
    assert np.allclose(rows.mean(axis=0), learner.grad(model, data))


def test_networks_have_gradients_of_rows_too():
    pytest.importorskip("torch")
    from persfl.learners.named import learner_named

    rng = np.random.default_rng(6)
    data = Data(rng.normal(size=(7, 2)), rng.normal(size=7))
    small = {"hidden": [3]}
    learner = learner_named("mlp", features=2, classes=0, settings=small)
    model = learner.init(data, stream(0, "start"))
    rows = m.row_gradients(learner, model, data)
    assert np.allclose(rows.mean(axis=0), learner.grad(model, data), atol=1e-6)


def test_products_say_the_truth_with_many_rows():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(20_000, 2))
    y = X @ [1.0, -2.0] + 0.1 * rng.normal(size=20_000)
    told = m.noised_products(Data(X, y), 3.0, 1.4, source())
    u = np.column_stack([np.ones(len(X)), X, y])
    u = m.clipped(u, 3.0)
    assert np.abs(told.matrix - u.T @ u).max() < 6 * told.deviation


@pytest.mark.parametrize(("clip", "z"), [(0.0, 1.0), (1.0, 0.0), (1.0, 1e-6)])
def test_noise_that_is_none_is_refused(clip, z):
    with pytest.raises(InputError, match="at least"):
        m.noised_sum(np.ones((2, 2)), clip, z, SystemNoise())


@pytest.mark.parametrize("z", [1e-2, 1.0, 1e7])
def test_counts_stay_whole_however_much_noise_there_is(z):
    """A step of more than a row would round counts: one row would move them further than 1."""
    counts = np.arange(40)
    step = m.noised_counts(counts + 1, 1.0, z, NoNoise()) - m.noised_counts(
        counts, 1.0, z, NoNoise()
    )
    assert (step == 1.0).all()


def test_leaves_are_the_same_however_many_rows_are_taken_at_a_time(monkeypatch):
    rng = np.random.default_rng(6)
    fell = rng.integers(0, 4, size=(50, 2))
    labels = rng.normal(size=(50, 1))
    asked = (fell, labels, (2, 4), 1.0, 1.0)
    whole = m.noised_leaves(*asked, NoNoise())
    monkeypatch.setattr(m, "_TOGETHER", 40)
    assert (m.noised_leaves(*asked, NoNoise()) == whole).all()
    first = np.clip(labels, -1, 1)[fell[:, 1] == 3].sum()
    assert whole[0, 7] == pytest.approx(first, abs=1e-3)
    assert whole[1, 7] == pytest.approx((fell[:, 1] == 3).sum(), abs=1e-3)
