"""Attacks on every mechanism: none finds more than the accountant allows, and half the noise is
found out.
"""

from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

from persfl import Data, Linear
from persfl.privacy import PrivacyBudget, mechanisms, true_positives
from persfl.privacy.exposure import exposure_of
from persfl.privacy.membership import (
    ALARMS,
    by_losses,
    by_sums,
    least_epsilon,
    ridge_losses,
)
from persfl.privacy.noised_ranges import counts_of, size_bins
from persfl.privacy.noised_spread import told_spread
from persfl.privacy.reconstruction import known_by_steps, moment_error, row_error
from persfl.privacy.secure_noise import SeededNoise
from persfl.seeds import stream

RUNS = 600
BUDGET = PrivacyBudget(epsilon=4.0, delta=1e-5)
# the row that is there or not stands out as far as clipping lets it
EMPTY = Data(np.zeros((0, 2)), np.zeros(0))
FULL = Data(np.array([[50.0, 0.0]]), np.array([50.0]))


def products(data, z, source):
    told = mechanisms.noised_products(data, 2.0, z, source).matrix
    row = mechanisms.clipped(np.array([[1.0, 50.0, 0.0, 50.0]]), 2.0)[0]
    return float((told * np.outer(row, row)).sum())


def gradient(data, z, source):
    learner = Linear(intercept=True)
    told = mechanisms.noised_gradient(learner, np.zeros(3), data, 1.0, z, source)
    slope = np.array([-50.0, 0.0, -1.0]) / np.hypot(50, 1)
    return float(told[:3] @ slope + mechanisms.COUNTING**2 * told[3])


def losses(data, z, source):
    each = np.full((data.rows, 2), 9.0)
    told = mechanisms.noised_losses(each, 4.0, z, source)
    return float(told[:2].sum() + told[2] * 4.0 * mechanisms.COUNTING**2)


def leaves(data, z, source):
    fell = np.zeros((data.rows, 2), dtype=np.int64)
    told = mechanisms.noised_leaves(fell, data.y[:, None], (2, 2), 1.0, z, source)
    return float(told[0, [0, 2]].sum() + mechanisms.COUNTING**2 * told[1, [0, 2]].sum())


def class_leaves(data, z, source):
    fell = np.zeros((data.rows, 3), dtype=np.int64)
    classes = np.ones(data.rows, dtype=np.int64)
    told = mechanisms.noised_class_leaves(fell, classes, (2, 3, 2), z, source)
    return float(told[1, [0, 2, 4]].sum())


def network_gradient(data, z, source):
    """A row whose gradient is far longer than the clip, of a network: along what it adds."""
    told = mechanisms.noised_gradient(NET, START, data, 1.0, z, source)
    return float(told[:-1] @ SLOPE + mechanisms.COUNTING**2 * told[-1])


def counts(data, z, source):
    told = counts_of(data.X, size_bins, 163, z, source)
    place = size_bins(FULL.X)[0]
    return float(told[np.arange(2), place].sum())


def spread(data, z, source):
    return float(told_spread(data.X + 50.0, z, source).sum())


MECHANISMS = [products, gradient, losses, leaves, class_leaves, counts, spread]
if find_spec("torch"):
    from persfl.learners.named import learner_named

    NET = learner_named("mlp", features=2, classes=0, settings={"hidden": [2]})
    START = np.asarray(NET.init(FULL, stream(0, "start")))
    # by torch.func, once: the attack is on the noise
    FOUND = mechanisms.row_gradients(NET, START, FULL)
    NET = SimpleNamespace(grad=lambda models, rows: FOUND[: len(rows.y)])
    SLOPE = mechanisms.clipped(FOUND, 1.0)[0]
    MECHANISMS.append(network_gradient)


def runs(mechanism, data, z, seed):
    source = SeededNoise(stream(seed, "audit"))
    return np.array([mechanism(data, z, source) for _ in range(RUNS)])


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: m.__name__)
def test_no_mechanism_tells_more_than_the_accountant_says(mechanism):
    """And half the noise, a mistake that is easily made, is found out by the same test."""
    found = {}
    for share in (1.0, 0.5):
        z = BUDGET.multiplier() * share
        told = [runs(mechanism, data, z, k) for k, data in enumerate((EMPTY, FULL))]
        found[share] = least_epsilon(told[1], told[0], BUDGET.delta, 1e-3)
    assert 1.0 < found[1.0] <= BUDGET.epsilon
    assert found[0.5] > BUDGET.epsilon


def test_membership_stays_below_the_bound_of_epsilon():
    rng = np.random.default_rng(0)
    u = mechanisms.clipped(
        np.column_stack([np.ones(40), rng.normal(size=(40, 3))]), 2.0
    )
    lengths = (u**2).sum(axis=1)
    one = PrivacyBudget(epsilon=1.0)
    z = one.multiplier()
    found = by_sums(lengths, z * 4.0)
    most = true_positives(1.0 / z, ALARMS)
    assert ALARMS <= found.mean <= found.worst <= most + 1e-12
    assert by_sums(lengths, 0.0).worst == 1.0
    # e^epsilon is the textbook's bound on true positives over false ones
    assert most <= np.e * ALARMS + one.delta


def test_an_attack_on_noised_sums_does_as_the_closed_form_says():
    z = 1.5
    tries = 1500
    row = np.array([2.0, 0.0])
    source = SeededNoise(stream(0, "attack"))
    none = np.zeros((0, 2))
    out, inside = (
        [mechanisms.noised_sum(rows, 2.0, z, source)[0] for _ in range(tries)]
        for rows in (none, row[None])
    )
    cut = np.quantile(out, 1 - ALARMS)
    hits = np.mean(np.array(inside) > cut)
    assert hits == pytest.approx(by_sums(np.array([2.0]), 2.0 * z).mean, abs=0.03)


def test_few_rows_stand_out_of_a_model_that_fits_them():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(12, 8)), rng.normal(size=12)
    tight = by_losses(*ridge_losses(X, y, 1e-6))
    loose = by_losses(*ridge_losses(X, y, 1e3))
    assert tight.mean > loose.mean


def test_leaving_a_row_out_in_closed_form_is_refitting():
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(7, 2)), rng.normal(size=7)
    _, outside = ridge_losses(X, y, 0.3)
    for i in range(7):
        keep = np.arange(7) != i
        A = X[keep].T @ X[keep] + 0.3 * np.eye(2)
        w = np.linalg.solve(A, X[keep].T @ y[keep])
        assert outside[i] == pytest.approx((y[i] - X[i] @ w) ** 2)


def test_as_many_answers_as_columns_and_one_more_determine_all():
    rng = np.random.default_rng(3)
    for d in (1, 4):
        for answers in range(1, d + 3):
            known = known_by_steps(rng.normal(size=(answers, d)))
            assert (known.share == 1.0) == (answers >= known.questions)


def test_a_single_row_is_read_off_exact_sums_and_lost_in_noised_ones():
    u = np.array([1.0, 0.4, -1.2, 0.7])
    exact = np.outer(u, u)
    assert row_error(exact, u) < 1e-7
    data = Data(u[None, 1:3], u[3:])
    z = PrivacyBudget(epsilon=1.0).multiplier()
    told = mechanisms.noised_products(
        data, 2.0, z, SeededNoise(stream(0, "row"))
    ).matrix
    assert row_error(told, u) > 0.5
    assert moment_error(told, exact) > 1.0


def test_what_is_known_after_so_many_answers_is_a_rank():
    rng = np.random.default_rng(4)
    for d in (1, 2, 4):
        for answers in range(d + 3):
            known = known_by_steps(rng.normal(size=(answers, d)))
            told = exposure_of(d, answers, squared=True)
            assert told[:3] == known
            assert told.found == (1.0 if answers else ALARMS)
    noised = exposure_of(3, 9, squared=True, mu=0.5)
    assert noised.known == 0
    assert noised.sentence.endswith("3.4 % of the time at most.")
    assert "determine all 9 sums" in exposure_of(3, 4, squared=True).sentence
    assert "6 of 9 sums" in exposure_of(3, 2, squared=True).sentence
    assert "single rows out" in exposure_of(3, 2, squared=False).sentence
