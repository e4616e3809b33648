"""How much of a rival's error is gone: per device, and as a mean over devices with an interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

if TYPE_CHECKING:
    from persfl.types import Array

# d of an error 4,000 times the rival's: intervals of very few devices end here
_LOWEST = -1.999


class Verdict(NamedTuple):
    """The typical share of a rival's error that personalizing removes, its 95 % interval, and
    what may be said.
    """

    gain: float
    low: float
    high: float
    says: str
    devices: int


def percent(share: float) -> str:
    """A share for a sentence.

    >>> percent(0.314), percent(-0.02)
    ('31 %', '−2 %')
    """
    return f"{'−' if round(share * 100) < 0 else ''}{abs(round(share * 100))} %"  # noqa: RUF001


def verdict(d: Array) -> Verdict:
    """The mean of relative differences with its interval, as a share of the error removed.

    >>> (
    ...     verdict(np.array([0.5, 0.4, 0.6, 0.5])).says,
    ...     verdict(np.array([0.5, -0.5])).says,
    ... )
    ('helps', 'no clear difference')
    """
    n = len(d)
    if not n:
        return Verdict(np.nan, np.nan, np.nan, "not measured", 0)
    mean = float(d.mean())
    half = (
        float(stdtrit(n - 1, 0.975) * d.std(ddof=1) / np.sqrt(n)) if n >= 2 else np.inf
    )
    low = mean - half
    high = mean + half
    says = "helps" if low > 0 else "hurts" if high < 0 else "no clear difference"
    return Verdict(
        float(gain_of(mean)), float(gain_of(low)), float(gain_of(high)), says, n
    )


def relative(rival: Array, personal: Array) -> Array:
    """(devices,) twice the difference of two errors over their sum; 0 where neither errs.

    >>> relative(np.array([3.0, 0.0]), np.array([1.0, 0.0])).tolist()
    [1.0, 0.0]
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        d = 2 * (rival - personal) / (rival + personal)
    return np.where(rival + personal == 0, 0.0, d)


def gain_of(d: ArrayLike) -> Array:
    """The share of a rival's error that is gone where the relative difference is `d`."""
    d = np.clip(np.asarray(d, dtype=np.float64), _LOWEST, 2.0)
    return np.asarray(2 * d / (2 + d))
