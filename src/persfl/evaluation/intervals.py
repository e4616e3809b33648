"""How much of a rival's error is gone: per device, and over devices, with an interval.

A *gain* is a difference of two errors over the larger one: 1 where an error is gone, 0 where
nothing changes, -1 where all of it is new. It cannot explode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr, ndtr, stdtrit

from persfl.seeds import stream

if TYPE_CHECKING:
    from persfl.evaluation.shared_moments import MomentSpread
    from persfl.types import Array

DRAWS = 1000  # of the bootstrap over devices
CHANCE = 0.05  # of what is called no chance
# an error that tables show as 0.0000 is none, whatever is how many times another
NO_ERROR = 5e-5
_AT_ONCE = 2**21  # numbers that are drawn together

# d of an error 4,000 times the rival's: intervals of very few devices end here
_LOWEST = -1.999


class Verdict(NamedTuple):
    """The share of a rival's error that personalizing removes over the fleet, its 95 % interval,
    and what may be said; the shares of devices that are better and worse off, and the chance of
    ranks this uneven were they not (Wilcoxon's signed ranks).
    """

    gain: float
    low: float
    high: float
    says: str
    devices: int
    better: float = np.nan
    worse: float = np.nan
    chance: float = np.nan


# what is said, by the mean (down, unclear, up) and by how many devices gain (likewise)
SAYS = (
    ("hurts", "hurts", "worse on average, better for most"),
    (
        "no clear difference on average, worse for most",
        "no clear difference",
        "no clear difference on average, better for most",
    ),
    ("better on average, worse for most", "helps", "helps"),
)
NOT_MEASURED = Verdict(np.nan, np.nan, np.nan, "not measured", 0)


def in_units(error: float) -> str:
    """An error in the label's own units, to four digits, as people write numbers.

    >>> in_units(0.13794), in_units(82449.6), in_units(3.2e-7)
    ('0.1379', '82,450', '3.2e-07')
    """
    if 1000 <= abs(error) < 1e12:
        return f"{error:,.0f}"
    return f"{error:.4g}"


def over_devices(
    rival: Array,
    personal: Array,
    fall: tuple[Array, Array] | None = None,
    most: tuple[float, float] = (0.5, 0.5),
    moments: MomentSpread | None = None,
) -> Verdict:
    """Errors of a rival and of personalized models, device by device: what may be said of all.

    The gain is that of the mean errors; errors below `NO_ERROR` differ by nothing. `fall` are per
    device what both errors are expected to fall by, with all rows to learn from: their means are
    taken off, up to the shares `most` of the errors. Since that is a guess, the interval reaches
    over both, with and without it. `moments` are what rows share beside their devices, over which
    the interval reaches too. The same errors give the same interval: draws depend on nothing else.

    >>> rival = np.linspace(0.8, 1.2, 20)
    >>> over_devices(rival, rival / 2).says
    'helps'
    >>> few = np.where(np.arange(20) < 5, 9.0, 0.0)
    >>> over_devices(rival + few, rival * 1.1).says
    'better on average, worse for most'
    >>> over_devices(rival * 1e-9, rival * 1e-6).says
    'no clear difference'
    """
    n = len(rival)
    if not n:
        return NOT_MEASURED
    errors = np.stack([rival, personal])
    falls = np.zeros((2, n)) if fall is None else np.stack(fall)
    share = np.array(most)
    mean = errors.mean(axis=1)
    kept = _levels(mean, falls.mean(axis=1), share)
    gain = float(gains_of(*kept))
    low, high = -1.0, 1.0
    if n > 1:
        with_all = [] if fall is None else [_interval(errors, falls, share)]
        ends = [*with_all, _interval(errors, np.zeros_like(falls), share)]
        low = min(end[0] for end in ends)
        high = max(end[1] for end in ends)
        if moments is not None:
            low, high = map(float, moments.ends(gain, low, high))
    factor = np.divide(kept, mean, out=np.ones(2), where=mean > NO_ERROR)
    seen = np.maximum(errors, NO_ERROR)
    difference = seen[0] * factor[0] - seen[1] * factor[1]
    measured = seen[0] - seen[1]
    chance, by_rank = _ranks(difference)
    heads = _heads(difference)
    if heads != _heads(measured):
        heads = 0  # a fall of the mean error is a guess, and no device's own
    average = 1 if low > 0 else -1 if high < 0 else 0
    if average == 0 and by_rank != heads:
        heads = 0  # ranks and heads must agree where the mean says nothing
    better = float((measured > 0).mean())
    worse = float((measured < 0).mean())
    says = SAYS[1 + average][1 + heads]
    return Verdict(gain, low, high, says, n, better, worse, chance)


def _levels(errors: Array, falls: Array, most: Array) -> Array:
    """Mean errors with all rows to learn from: more rows never raise one, nor take off more than
    these shares.
    """
    share = most.reshape(2, *[1] * (errors.ndim - 1))
    left = np.clip(errors - falls, errors * (1 - share), errors)
    return np.asarray(np.maximum(left, NO_ERROR))


def _interval(errors: Array, falls: Array, most: Array) -> tuple[float, float]:
    """The bootstrap's 95 % interval of the gain over devices, as wide as Student's for so few."""
    n = errors.shape[1]
    random = stream(0, "devices drawn again", n).generator()
    found = []
    step = max(1, _AT_ONCE // n)
    for first in range(0, DRAWS, step):
        drawn = random.integers(n, size=(min(step, DRAWS - first), n))
        mean = errors[:, drawn].mean(axis=2)
        fell = falls[:, drawn].mean(axis=2)
        found.append(gains_of(*_levels(mean, fell, most)))
    # where a few loud devices make most of the error, it is their number that counts
    loudest = errors.max(axis=0)
    squares = float((loudest**2).sum())
    count = float(loudest.sum()) ** 2 / squares if squares > 0 else float(n)
    freedom = max(count - 1, 1.0)
    wide = stdtrit(freedom, 0.975) * np.sqrt(n / (n - 1))
    tail = float(ndtr(-wide))
    low, high = np.quantile(np.concatenate(found), [tail, 1 - tail])
    return float(low), float(high)


def _ranks(difference: Array) -> tuple[float, int]:
    """How likely ranks this uneven are by chance, and which way they lean if that is little."""
    from scipy.stats import rankdata, wilcoxon

    some = difference[difference != 0]
    if len(some) < 2:
        return 1.0, 0
    chance = float(wilcoxon(some, method="asymptotic").pvalue)
    up = float((np.sign(some) * rankdata(np.abs(some))).sum())
    return chance, int(np.sign(up)) if chance < CHANCE else 0


def _heads(difference: Array) -> int:
    """Whether more devices are better off (1) or worse off (-1) than chance would make so."""
    better = int((difference > 0).sum())
    worse = int((difference < 0).sum())
    fewer = min(better, worse)
    by_chance = 2 * float(bdtr(fewer, better + worse, 0.5)) if better + worse else 1.0
    return 0 if by_chance >= CHANCE else 1 if better > worse else -1


def gains_of(rival: ArrayLike, personal: ArrayLike, least: ArrayLike = 0.0) -> Array:
    """A difference of errors over the larger of both, or over `least` where both are smaller.

    >>> gains_of([2.0, 1.0, 0.0, 1e-9], [1.0, 4.0, 0.0, 1e-6], 0.1).round(2).tolist()
    [0.5, -0.75, 0.0, -0.0]
    """
    a, b = np.asarray(rival, dtype=np.float64), np.asarray(personal, dtype=np.float64)
    level = np.maximum(np.maximum(a, b), least)
    level = np.where(level > 0, level, 1.0)
    return np.asarray((a - b) / level)


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
