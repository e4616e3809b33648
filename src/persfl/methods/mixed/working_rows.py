"""Losses other than the squared one, as squared loss of other labels: *working rows*.

Near a score z a loss is a parabola. Its lowest point is the label, and its curvature the weight of
a squared loss that says the same there. So a mixed model of any loss is one of squared loss, made
again at the scores that came out, until they stay (penalized quasi-likelihood, Breslow and Clayton
1993):

    counts              label z + (y - m) / m           weight m, of the rate m = exp(z)
    huber, absolute     label z + psi / mean of psi'    weight 1, of psi = y - z cut at delta

What is left of labels is noise. Of counts it says how much more they vary than chance (1 is
Poisson's). Labels of a robust loss are *pseudo-values* (Huber 1981): no row is far away, and their
noise is what models of that loss have, so that Sigma is learned as with squared loss. Absolute loss
is that of a small delta.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from persfl.learners.linear import Linear
from persfl.methods.mixed.device_sums import DeviceSums
from persfl.types import Array, IntArray

FAR = 7.0  # rates below exp(-FAR) times the usual one are as small as any
# delta of absolute loss, by the usual residual; with half of it three rows may take turns for ever
SHARP = 0.5

ROUNDS = 12  # of working rows, at most; counts settle after four or five
STRIDE = 2.0  # of a score in one round: a rate is at most seven times what it was
# of the way in one round, of robust losses: rows near their scores pull harder than the mean row
HALF = 0.5


class WorkingRows(NamedTuple):
    """Labels and weights (rows,) of squared loss."""

    label: Array
    weight: Array

    def sums(self, Z: Array, weight: Array, start: IntArray) -> DeviceSums:
        """Of rows Z that weigh so much; `weight` of the sums counts rows."""
        found = DeviceSums.of(Z, self.label, weight * self.weight, start)
        return found._replace(weight=np.add.reduceat(weight, start[:-1]))


def working_rows(learner: Linear, score: Array, y: Array, weight: Array) -> WorkingRows:
    """Of these scores, labels and weights (0 for rows that do not count).

    >>> counts = Linear("poisson")
    >>> found = working_rows(
    ...     counts, np.log([2.0, 4.0]), np.array([3.0, 4.0]), np.ones(2)
    ... )
    >>> (found.label - np.log([2.0, 4.0])).round(3).tolist(), found.weight.tolist()
    ([0.5, 0.0], [2.0, 4.0])
    """
    if learner.kind == "poisson":
        usual = usual_score(y, weight)
        near = np.clip(score, usual - FAR, None)
        rate = np.exp(near)
        return WorkingRows(near + (y - rate) / rate, rate)
    left = y - score
    size = np.abs(left)
    cut = learner.delta
    if learner.kind == "absolute":
        cut = SHARP * max(_quantile(size, weight, 0.5), 1e-9)
    width = max(cut, _quantile(size, weight, 0.25))
    # how many lie near their scores; of a delta that hardly any row is within, by those about it
    slope = cut / width * (weight @ (size <= width)) / weight.sum()
    return WorkingRows(score + np.clip(left, -cut, cut) / slope, np.ones(len(y)))


def safe_part(learner: Linear, step: Array) -> float:
    """How much of a step to take that moves the scores of a device's rows so far.

    >>> safe_part(Linear("poisson"), np.array([1.0, -8.0]))
    0.25
    """
    if learner.kind != "poisson":
        return HALF
    return STRIDE / max(float(np.abs(step).max(initial=0.0)), STRIDE)


def usual_score(y: Array, weight: Array) -> float:
    """The score of the mean count; of nothing but zeros that of half a count in all."""
    rows = max(float(weight.sum()), 1e-300)
    return float(np.log(max(float(weight @ y), 0.5) / rows))


def _quantile(size: Array, weight: Array, share: float) -> float:
    """The least size that such a share of the rows does not exceed."""
    order = np.argsort(size, kind="stable")
    below = np.cumsum(weight[order])
    return float(size[order[np.searchsorted(below, share * below[-1])]])
