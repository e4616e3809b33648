"""What the rows held back share across devices: moments of time, or keys.

A month is good or bad for all devices at once. Devices that are drawn again and again are always
those of the same months, so intervals over devices alone know nothing of other months. How much
months differ is told by those that were held back: each adds its part to the mean error of the
fleet, and these parts vary.

Rows to come are other months. What they will say varies as much as what these said, so an interval
for as many rows to come has twice the variance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

if TYPE_CHECKING:
    from persfl.types import Array, IntArray

# Side by side, moments go on from one to the next: more of them than this are taken in parts of
# several in a row, which hardly do.
PARTS = 12
FEWEST = 3  # of fewer moments nobody can tell how much they vary
_NEARLY = 1.0 - 1e-9


class MomentSpread(NamedTuple):
    """How much moments make the logarithm of a ratio of two errors vary, how many there were, and
    whether others are meant that are still to come.
    """

    variance: float
    parts: int
    ahead: bool

    def ends(
        self, gain: ArrayLike, low: ArrayLike, high: ArrayLike
    ) -> tuple[Array, Array]:
        """An interval of a gain over devices, as wide as it is over moments too. Of too few
        moments to tell, they count as much as devices do.

        >>> one = MomentSpread(0.0, 6, ahead=False).ends(0.2, 0.1, 0.3)
        >>> [round(float(end), 6) for end in one]
        [0.1, 0.3]
        >>> later = MomentSpread(0.01, 6, ahead=True).ends(0.2, 0.1, 0.3)
        >>> [round(float(end), 2) for end in later]
        [-0.16, 0.47]
        """
        at = _logarithm(gain)
        below = at - _logarithm(low)
        above = _logarithm(high) - at
        told = self.parts >= FEWEST
        reach = stdtrit(self.parts - 1, 0.975) ** 2 * self.variance if told else 0.0
        times = (1 + self.ahead) * (1 if told else 2)
        return (
            _gain(at - np.sqrt(times * (below**2 + reach))),
            _gain(at + np.sqrt(times * (above**2 + reach))),
        )


@dataclass(frozen=True, eq=False)
class SharedMoments:
    """What moments add to the mean error over devices, per arm (moments,); and whether rows to come
    are meant.
    """

    errors: Mapping[str, Array]
    ahead: bool

    def spread(self, against: str, of: str) -> MomentSpread:
        """How much moments vary for two arms."""
        rival = self.errors[against]
        mine = self.errors[of]
        count = len(rival)
        level = min(rival.sum(), mine.sum())
        if count < FEWEST or not level > 0:
            return MomentSpread(0.0, count, self.ahead)
        apart = rival / rival.sum() - mine / mine.sum()
        variance = count / (count - 1) * float((apart**2).sum())
        return MomentSpread(variance, count, self.ahead)


def shared_moments(
    moment: IntArray,
    owner: IntArray,
    weight: Array,
    losses: Mapping[str, Array],
    *,
    ahead: bool,
) -> SharedMoments:
    """Of rows held back: `moment`, `owner`, `weight` and losses have one entry per row.

    >>> one = {"own": np.array([1.0, 3.0, 1.0, 3.0])}
    >>> rows = np.array([5, 6, 5, 6]), np.array([0, 0, 1, 1]), np.ones(4)
    >>> shared_moments(*rows, one, ahead=True).errors["own"].tolist()
    [0.5, 1.5]
    """
    known, at = np.unique(moment, return_inverse=True)
    many = len(known)
    part = at * PARTS // many if many > PARTS else at
    total = np.bincount(owner, weights=weight)
    share = weight / np.maximum(total, 1e-300)[owner] / max((total > 0).sum(), 1)
    count = min(many, PARTS)
    errors = {
        arm: np.bincount(part, weights=share * loss, minlength=count).astype(np.float64)
        for arm, loss in losses.items()
    }
    return SharedMoments(errors, ahead)


def _logarithm(gain: ArrayLike) -> Array:
    """Of the ratio of two errors: below 0 where the gain is."""
    size = np.minimum(np.abs(gain), _NEARLY)
    return np.asarray(-np.sign(gain) * np.log1p(-size))


def _gain(logarithm: Array) -> Array:
    """The inverse."""
    return np.asarray(-np.sign(logarithm) * np.expm1(-np.abs(logarithm)))
