"""Is this row there? Attacks that try to tell, and how often they succeed.

What counts is how many rows that are there are found (true positives) at 1 % of false alarms:
a mean over all rows hides the few that stand out (Carlini et al. 2022).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import betaincinv, ndtri

from persfl.privacy.gaussian import epsilon_of, true_positives
from persfl.types import Array

ALARMS = 0.01


class Found(NamedTuple):
    """Shares of rows that an attack finds at 1 % of false alarms: in the mean, and of the row that
    stands out most.
    """

    mean: float
    worst: float


def by_sums(lengths: Array, deviation: float) -> Found:
    """The best attack there is on noised sums, by someone who knows all other rows: it looks
    along what the row adds, which has these `lengths`. In closed form.

    >>> by_sums(np.array([1.0, 2.0]), 0.0)
    Found(mean=1.0, worst=1.0)
    >>> tuple(round(share, 3) for share in by_sums(np.array([1.0, 2.0]), 2.0))
    (0.063, 0.092)
    """
    if deviation <= 0:
        return Found(1.0, 1.0)
    each = [true_positives(float(length) / deviation, ALARMS) for length in lengths]
    return Found(float(np.mean(each)), float(np.max(each)))


def by_losses(inside: Array, outside: Array) -> Found:
    """An attack on a model alone: rows that it fits better than strangers are held to be there.

    `inside` are losses of rows under models that were learned with them, `outside` under models
    that were learned without: left out in closed form, or by refits.

    >>> by_losses(np.zeros(50), np.linspace(0.1, 1.0, 100))
    Found(mean=1.0, worst=1.0)
    """
    cut = float(np.quantile(outside, ALARMS, method="lower"))
    found = float(np.mean(inside < cut)) if cut > float(np.min(outside)) else 0.0
    found = max(found, float(np.mean(inside < float(np.min(outside)))))
    return Found(found, 1.0 if found else 0.0)


def ridge_losses(X: Array, y: Array, strength: float) -> tuple[Array, Array]:
    """(rows,) squared errors of each row under a ridge fit with it and without it, the latter in
    closed form: residual / (1 - leverage).

    >>> X, y = np.random.default_rng(0).normal(size=(9, 2)), np.arange(9.0)
    >>> inside, outside = ridge_losses(X, y, 0.1)
    >>> bool((outside >= inside).all())
    True
    """
    gram = X.T @ X + strength * np.eye(X.shape[1])
    solved = np.linalg.solve(gram, X.T)
    left = y - X @ (solved @ y)
    leverage = np.einsum("rd,dr->r", X, solved)
    return left**2, (left / np.maximum(1.0 - leverage, 1e-9)) ** 2


def least_epsilon(inside: Array, outside: Array, delta: float, doubt: float) -> float:
    """An epsilon below which a mechanism cannot be, by what runs of it told with a row (larger
    numbers) and without it; true but for a chance of `doubt`.

    At one cut, which the first halves of the runs choose and the second judge. Shares have exact
    binomial limits (Clopper, Pearson), and what Gaussian privacy of some mu would allow is their
    distance in standard deviations (Nasr et al. 2023).

    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.normal(1, 1, 4000), rng.normal(0, 1, 4000)
    >>> bool(3.0 < least_epsilon(a, b, 1e-5, 0.01) < 4.377)
    True
    """
    half = len(inside) // 2
    cuts = np.quantile(outside[:half], np.linspace(0.3, 0.95, 40))
    tried = [
        _least_mu(inside[:half], outside[:half], float(cut), doubt) for cut in cuts
    ]
    cut = float(cuts[int(np.argmax(tried))])
    mu = _least_mu(inside[half:], outside[half:], cut, doubt)
    return epsilon_of(max(mu, 0.0), delta)


def _least_mu(inside: Array, outside: Array, cut: float, doubt: float) -> float:
    """How far apart two normal numbers are at least, of which these are above a cut."""
    hits = int((inside > cut).sum())
    alarms = int((outside > cut).sum())
    low = betaincinv(hits, len(inside) - hits + 1, doubt / 2) if hits else 0.0
    rest = len(outside) - alarms
    high = betaincinv(alarms + 1, rest, 1.0 - doubt / 2) if rest else 1.0
    return float(ndtri(low) - ndtri(high))
