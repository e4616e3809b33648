"""The accountant: equal to the closed form and to somebody else's, monotone, and never too low."""

import itertools
import math

import numpy as np
import pytest

from persfl.errors import InputError
from persfl.privacy import (
    Accountant,
    PrivacyBudget,
    answer_cost,
    delta_of,
    epsilon_of,
    mu_of,
    multiplier,
    true_positives,
)

# epsilon, delta, answers, noise multiplier of each: recomputed from the formula elsewhere
TABLE = [
    (1, 1e-5, 1, 3.73),
    (1, 1e-5, 20, 16.7),
    (3, 1e-5, 1, 1.39),
    (3, 1e-5, 61, 10.9),
    (6, 1e-5, 20, 3.4),
    (8, 1e-5, 640, 15.2),
    (6, 1e-3, 20, 2.7),
]


@pytest.mark.parametrize(("epsilon", "delta", "answers", "z"), TABLE)
def test_noise_is_that_of_the_published_table(epsilon, delta, answers, z):
    assert multiplier(epsilon, delta, answers) == pytest.approx(z, rel=0.01)


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
@pytest.mark.parametrize("mu", [0.05, 0.7, 2.0, 9.0])
def test_epsilon_delta_and_mu_are_inverses(mu, delta):
    epsilon = epsilon_of(mu, delta)
    assert delta_of(mu, epsilon) <= delta  # never promised more than is kept
    assert delta_of(mu, epsilon * (1 - 1e-6)) > delta or epsilon == 0
    if epsilon > 0:
        assert mu_of(epsilon, delta) == pytest.approx(mu, rel=1e-9)


def test_delta_is_the_integral_of_the_privacy_loss():
    # hockey-stick divergence of N(mu, 1) from N(0, 1), by brute force
    x = np.linspace(-12, 14, 2_000_001)
    for mu, epsilon in [(0.5, 0.3), (1.0, 1.0), (3.0, 2.0)]:
        p = np.exp(-((x - mu) ** 2) / 2) / math.sqrt(2 * math.pi)
        q = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
        area = np.maximum(p - math.exp(epsilon) * q, 0).sum() * (x[1] - x[0])
        assert delta_of(mu, epsilon) == pytest.approx(area, rel=1e-5)


def test_composition_adds_squares_whatever_the_order():
    budget = PrivacyBudget(epsilon=4.0, delta=1e-6)
    noises = [3.0, 11.0, 5.5, 40.0]
    forth, back = Accountant(budget), Accountant(budget)
    for z in noises:
        forth = forth.after(answer_cost(z))
    for z in reversed(noises):
        back = back.after(answer_cost(z))
    alone = 1 / math.sqrt(sum(1 / z**2 for z in noises))
    assert forth.epsilon == pytest.approx(back.epsilon)
    assert forth.epsilon == pytest.approx(epsilon_of(1 / alone, 1e-6))


def test_more_is_never_cheaper():
    budget = PrivacyBudget(epsilon=2.0)
    account = Accountant(budget)
    before = 0.0
    for z in np.random.default_rng(0).uniform(5, 80, size=30):
        account = account.after(answer_cost(z))
        assert account.epsilon >= before
        before = account.epsilon
    noises = np.geomspace(0.3, 300, 40)
    costs = [epsilon_of(1 / z, 1e-5) for z in noises]
    assert all(a >= b for a, b in itertools.pairwise(costs))


def test_a_budget_is_spent_to_the_last_answer_and_no_further():
    budget = PrivacyBudget(epsilon=3.0, delta=1e-5)
    z = budget.multiplier(answers=20)
    account = Accountant(budget)
    for left in range(20, 0, -1):
        assert account.answers(z) == left
        assert account.fits(answer_cost(z))
        account = account.after(answer_cost(z))
    assert account.epsilon == pytest.approx(3.0)
    assert not account.fits(answer_cost(1000 * z))


@pytest.mark.smoke
def test_somebody_elses_accountant_agrees():
    pytest.importorskip("dp_accounting", reason="the extra `privacy` is not installed")
    from persfl.privacy.second_opinion import other_epsilon

    for noises in ([2.0], [6.2] * 20, [3.0, 11.0, 5.5]):
        mu = math.sqrt(sum(1 / z**2 for z in noises))
        ours = epsilon_of(mu, 1e-5)
        theirs = other_epsilon(noises, 1e-5)  # rounded up to a grid
        assert ours <= theirs <= ours + 1e-3 * len(noises)


def test_the_bound_on_attacks_is_that_of_epsilon():
    # a pair of normal numbers is the worst that an attacker can meet
    rng = np.random.default_rng(3)
    mu = 1.3
    out, inside = rng.standard_normal(400_000), mu + rng.standard_normal(400_000)
    cut = np.quantile(out, 0.99)
    assert np.mean(inside > cut) == pytest.approx(true_positives(mu, 0.01), abs=0.005)


@pytest.mark.parametrize(
    ("epsilon", "delta", "what"),
    [
        (0, 1e-5, "epsilon"),
        (1, 0, "delta"),
        (1, 0.9, "delta"),
        (np.nan, 0.1, "epsilon"),
    ],
)
def test_nonsense_is_refused(epsilon, delta, what):
    with pytest.raises(InputError, match=what):
        PrivacyBudget(epsilon=epsilon, delta=delta)
