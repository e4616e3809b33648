"""Losses other than the squared one, as squared loss of other labels: *working rows*.

Near a score a loss is a parabola. Its lowest point is the label, and its curvature the weight of
a squared loss that says the same there. So a mixed model of any loss is one of squared loss, made
again at the scores that came out, until they stay (penalized quasi-likelihood, Breslow and Clayton
1993). What labels are away from scores:

    counts              (y - m) / m             weight m, of the rate m = exp(score)
    huber, absolute     psi / mean of psi'      weight 1, of psi = y - score cut at delta

What is left of labels is noise. Of counts it says how much more they vary than chance (1 is
Poisson's). Labels of a robust loss are *pseudo-values* (Huber 1981): no row is far away, and their
noise is what models of that loss have, so that Sigma is learned as with squared loss. Absolute loss
is that of a small delta, which follows the noise.

Models need sums over working rows (`LossSums`), never rows; so rows may be at home at devices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from persfl.learners.linear import Linear
from persfl.methods.mixed.device_sums import DeviceSums
from persfl.types import Array, IntArray

FAR = 7.0  # rates below exp(-FAR) times the usual one are as small as any
HUGE = 60.0  # and none is larger than exp(HUGE) times that
# how far a row may be to be near its score, by the noise; delta of absolute loss
SHARP = 0.3
ALL = 1e9  # so far all rows are near: squared loss, which robust ones begin with
NEAR = 0.05  # the least share of rows that is taken to be near

ROUNDS = 12  # of working rows, at most; counts settle after four or five
STRIDE = 2.0  # of a score in one round: a rate is at most seven times what it was
# of the way in one round, of robust losses: rows near their scores pull harder than the mean row
HALF = 0.5


class LeftRows(NamedTuple):
    """What labels are away from scores, and how much a loss bends there; of robust losses psi, and
    1. `near` is 1 for rows that are near.
    """

    left: Array
    curve: Array
    near: Array


def left_rows(learner: Linear, score: Array, y: Array, reach: float) -> LeftRows:
    """Of these scores and labels (see `next_reach`).

    >>> score = np.log([2.0, 4.0])
    >>> made = left_rows(Linear("poisson"), score, np.array([3.0, 4.0]), -9.0)
    >>> made.left.round(3).tolist(), made.curve.round(3).tolist()
    ([0.5, 0.0], [2.0, 4.0])
    """
    one = np.ones(len(y))
    if learner.kind == "poisson":
        held = np.clip(score, reach, reach + FAR + HUGE)
        rate = np.exp(held)
        return LeftRows(held - score + (y - rate) / rate, rate, one)
    away = y - score
    cut = _cut(learner, reach)
    near = (np.abs(away) <= reach).astype(np.float64)
    return LeftRows(np.clip(away, -cut, cut), one, near)


class LossSums(NamedTuple):
    """Sums over a device's working rows, their labels being what these are away from scores; of
    robust losses psi. `near` is what rows near their scores weigh. See `DeviceSums`.
    """

    square: Array
    product: Array
    label: Array
    weight: Array
    near: Array

    @staticmethod
    def of(
        learner: Linear,
        Z: Array,
        score: Array,
        y: Array,
        weight: Array,
        start: IntArray,
        reach: float,
    ) -> LossSums:
        """Of rows Z that stand device by device, at these scores.

        >>> counts = Linear("poisson")
        >>> y = np.array([3.0, 4.0])
        >>> one, all_rows = np.ones(2), np.array([0, 2])
        >>> found = LossSums.of(
        ...     counts, one[:, None], np.log(y - [1, 0]), y, one, all_rows, -9.0
        ... )
        >>> found.square.ravel().tolist(), found.product.ravel().round(9).tolist()
        ([6.0], [1.0])
        """
        made = left_rows(learner, score, y, reach)
        sums = DeviceSums.of(Z, made.left, weight * made.curve, start)
        both = np.stack([weight, weight * made.near])
        each = np.split(both, start[1:-1], axis=1)
        rows, near = np.stack([one.sum(axis=1) for one in each], axis=1)
        return LossSums(sums.square, sums.product, sums.label, rows, near)

    def weighed(self, by: Array) -> LossSums:
        """As if each device's rows weighed so many times as much."""
        rest = DeviceSums(*self[:4]).weighed(by)
        return LossSums(*rest, self.near * by)

    def left(self, learner: Linear, reach: float) -> DeviceSums:
        """With labels that working rows are away from their scores."""
        slope = 1.0
        if learner.kind != "poisson":
            share = float(self.near.sum()) / max(float(self.weight.sum()), 1e-300)
            slope = _cut(learner, reach) / reach * max(share, NEAR)
        product = self.product / slope
        return DeviceSums(self.square, product, self.label / slope**2, self.weight)

    def about(self, learner: Linear, reach: float, models: Array) -> DeviceSums:
        """Of working rows with their labels, at the scores of these models (n, d)."""
        left = self.left(learner, reach)
        fitted = np.einsum("nij,nj->ni", left.square, models)
        said = (models * (2.0 * left.product + fitted)).sum(axis=1)
        return left._replace(product=left.product + fitted, label=left.label + said)


def _cut(learner: Linear, reach: float) -> float:
    """The most that psi is."""
    plain = learner.kind == "absolute" or reach >= ALL
    return reach if plain else learner.delta


def most_left(learner: Linear, reach: float) -> float:
    """The furthest that a row's label may be from its score, as sums have it."""
    return np.inf if learner.kind == "poisson" else _cut(learner, reach)


def is_reach(learner: Linear, told: float) -> bool:
    """Whether it can be one: rates must be numbers that a computer knows, psi be above 0."""
    if learner.kind == "poisson":
        return abs(told) <= 100.0
    return 0.0 < told <= ALL


def first_reach(learner: Linear, usual: float) -> float:
    """The reach before any noise is known: of counts from the usual score, which is all of it."""
    return usual - FAR if learner.kind == "poisson" else ALL


def next_reach(learner: Linear, reach: float, noise: float) -> float:
    """The reach where noise has this precision: the lowest score of counts; of robust losses how
    far a row is away that is near.
    """
    if learner.kind == "poisson":
        return reach
    near = SHARP / float(np.sqrt(noise))
    return near if learner.kind == "absolute" else max(near, learner.delta)


def safe_part(learner: Linear, step: Array) -> float:
    """How much of a step to take that moves the scores of a device's rows so far: of counts it is
    halved as often as it must be, so that one step tells little of the row that moves furthest.

    >>> safe_part(Linear("poisson"), np.array([1.0, -7.0]))
    0.25
    """
    if learner.kind != "poisson":
        return HALF
    far = float(np.abs(step).max(initial=0.0)) / STRIDE
    return float(2.0 ** -np.ceil(np.log2(max(far, 1.0))))


def usual_score(counts: float, rows: float) -> float:
    """The score of the mean of so many counts in all; of nothing but zeros that of half a count."""
    return float(np.log(max(counts, 0.5) / max(rows, 1e-300)))
