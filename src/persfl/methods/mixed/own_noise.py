"""Every device's own noise, under a prior that all devices tell together.

    precision_i ~ Gamma(nu / 2, nu / (2 usual))
    E[precision_i] = (nu + m_i) / (nu / usual + r_i)

`r_i` is the sum of squared residuals of device i, `m_i` its rows. `nu` says how alike devices are:
with many degrees of freedom all have the usual noise, with few each has its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from persfl.types import Array

# degrees of freedom that are tried: from devices that have little in common to nearly one noise
ALIKE = 2.0 ** np.arange(1, 12)
SAME = 1e9  # as many: all have one noise
# a device whose rows are fitted without error is as precise as this at most
PRECISE = 1e7


class Noise(NamedTuple):
    """Precisions (one over the variance): the usual one, every device's, and how many rows' worth
    of evidence there is for the usual one.
    """

    usual: float
    each: Array
    alike: float

    def of_devices(self, residual: Array, weight: Array) -> Noise:
        """The same prior, and the precisions of these devices."""
        each = (self.alike + weight) / (self.alike / self.usual + residual)
        return self._replace(each=np.minimum(each, PRECISE))


def common_noise(residual: Array, weight: Array) -> Noise:
    """One noise for all.

    >>> common_noise(np.array([2.0, 6.0]), np.array([4.0, 4.0])).usual
    1.0
    """
    usual = float(weight.sum() / max(residual.sum(), 1e-300))
    usual = min(usual, PRECISE)
    return Noise(usual, np.full(len(residual), usual), SAME)


def own_noise(residual: Array, weight: Array, usual: float) -> Noise:
    """Everybody's own, `nu` and the usual precision where these residuals are likeliest.

    >>> loud = own_noise(np.array([1.0, 1.1, 0.9, 900.0]), np.full(4, 10.0), 1.0)
    >>> (loud.each[3] < 0.05, loud.each[:3].min() > 5)
    (np.True_, np.True_)
    """
    nu = ALIKE[:, None]
    base = np.full((len(ALIKE), 1), usual)
    rows = weight.sum()
    for _ in range(3):  # the usual precision, where the residuals are likeliest
        each = (nu + weight) / (nu / base + residual)
        told = np.maximum((each * residual).sum(axis=1, keepdims=True), 1e-300)
        base = np.minimum(base * rows / told, PRECISE)
    likely = (
        gammaln((nu + weight) / 2)
        - gammaln(nu / 2)
        - weight / 2 * np.log(nu / base)
        - (nu + weight) / 2 * np.log1p(base * residual / nu)
    ).sum(axis=1)
    best = int(likely.argmax())
    prior = Noise(float(base[best, 0]), residual, float(nu[best, 0]))
    return prior.of_devices(residual, weight)
