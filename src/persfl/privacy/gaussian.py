"""What Gaussian noise promises, in closed form.

A sum to which one row adds a vector of length at most C, told with noise of standard deviation
z C, is hidden as well as one number 0 or 1 that is told with noise z. Any number of such answers,
whoever asked for them and however each question hung on earlier answers, are as good as one with

    mu = sqrt(1 / z1^2 + 1 / z2^2 + ...)                      (mu-GDP, Dong, Roth, Su 2022)

and that is (epsilon, delta) private, for every epsilon, with the delta of `delta_of` and no
smaller one (Balle, Wang 2018). So nothing is lost by adding up squares.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.special import log_ndtr

from persfl.checks import real, whole

_HALVINGS = 200


def delta_of(mu: float, epsilon: float) -> float:
    """The least delta with which noise of this `mu` is (epsilon, delta) private.

    >>> round(delta_of(1.0, 1.0), 6), delta_of(0.0, 1.0)
    (0.126937, 0.0)
    """
    if mu <= 0:
        return 0.0
    first = float(log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    if second >= first:  # what rounding leaves of nothing
        return 0.0
    return math.exp(first) * -math.expm1(second - first)


def epsilon_of(mu: float, delta: float) -> float:
    """The least epsilon with which noise of this `mu` is (epsilon, delta) private; rounded up.

    >>> round(epsilon_of(1.0, 1e-5), 3), epsilon_of(0.0, 1e-5)
    (4.377, 0.0)
    """
    if delta_of(mu, 0.0) <= delta:
        return 0.0
    high = 1.0
    while delta_of(mu, high) > delta:
        high *= 2.0
    return _least(lambda epsilon: delta_of(mu, epsilon) <= delta, high)


def mu_of(epsilon: float, delta: float) -> float:
    """The most that may be told within (epsilon, delta); rounded down.

    >>> round(mu_of(3.0, 1e-5), 4)
    0.7191
    """
    real("epsilon", epsilon, above=0)
    real("delta", delta, above=0, most=0.5)
    # by its inverse: the least z with which one answer fits
    high = 1.0
    while delta_of(1.0 / high, epsilon) > delta:
        high *= 2.0
    return 1.0 / _least(lambda z: delta_of(1.0 / z, epsilon) <= delta, high)


def multiplier(epsilon: float, delta: float, answers: int = 1) -> float:
    """The noise of each of so many answers that together use up (epsilon, delta), in units of
    what one row can add.

    >>> [round(multiplier(3.0, 1e-5, k), 2) for k in (1, 20)]
    [1.39, 6.22]
    """
    whole("answers", answers, least=1)
    return math.sqrt(answers) / mu_of(epsilon, delta)


def true_positives(mu: float, false_positives: float) -> float:
    """The most true positives that any attack can have at this share of false ones.

    >>> round(true_positives(1.0, 0.01), 3), true_positives(0.0, 0.01)
    (0.092, 0.01)
    """
    from scipy.special import ndtr, ndtri

    if mu <= 0:
        return false_positives
    return float(ndtr(ndtri(false_positives) + mu))


def _least(good: Callable[[float], bool], high: float) -> float:
    """The least number above 0 that is good, where all larger ones are; never below it."""
    low = 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if good(middle) else (middle, high)
    return high
