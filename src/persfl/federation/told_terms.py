"""What devices tell under the terms of a run: sums over rows or over working rows, bends of log
chances, sums in leaves, or none of these; and terms in the units that ranges give.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from persfl.methods.mixed import FEW, OF_SCORES, SMALL
from persfl.traits import traits_of
from persfl.types import Array, Learner
from persfl.wire.terms import Terms


def tells_sums(terms: Terms) -> bool:
    """Whether models of these terms are blended from sums.

    >>> tells_sums(Terms(columns=("a",)))
    True
    >>> tells_sums(Terms(columns=("a",), settings={"loss": "huber"}))
    False
    """
    if terms.model != "linear" or terms.classes:
        return False
    return bool(terms.learner().kind == "squared")


def tells_bends(terms: Terms) -> bool:
    """Whether models of these terms are blended from bends of the log chance: small linear models
    of classes.

    >>> settings = {"loss": "logistic"}
    >>> tells_bends(Terms(columns=("a",), settings=settings, classes=2))
    True
    >>> wide = tuple(f"x{k}" for k in range(90))
    >>> tells_bends(Terms(columns=wide, settings=settings, classes=2))
    False
    """
    if terms.model != "linear" or not terms.classes:
        return False
    learner = terms.learner()
    columns = terms.features + learner.intercept
    return bool(columns * max(terms.classes, 2) <= SMALL)


def tells_losses(terms: Terms) -> bool:
    """Whether models of these terms are blended from sums over working rows: linear models of
    counts or under a robust loss, of not too many columns.

    >>> tells_losses(Terms(columns=("a",), settings={"loss": "huber"}))
    True
    >>> tells_losses(Terms(columns=("a",)))
    False
    """
    if terms.model != "linear" or terms.classes:
        return False
    learner = terms.learner()
    columns = terms.features + learner.intercept
    return learner.kind in OF_SCORES and bool(columns <= FEW)


def tells_leaves(terms: Terms) -> bool:
    """Whether these are trees or forests without public points: what protected devices answer.

    >>> tells_leaves(Terms(model="tree", columns=("a",)))
    True
    >>> tells_leaves(Terms(model="boosting", columns=("a",)))
    False
    """
    return terms.model in ("tree", "forest") and terms.public is None


def within_ranges(terms: Terms, ranges: Array) -> Terms:
    """The same in units in which these ranges, of columns and the label, are -1 to 1; classes keep
    their numbers.
    """
    middle = ranges.mean(axis=1)
    half = np.ptp(ranges, axis=1) / 2.0
    inside = replace(terms, mean=middle[:-1], scale=half[:-1])
    if terms.classes:
        return inside
    return replace(inside, label_mean=float(middle[-1]), label_scale=float(half[-1]))


def with_units(terms: Terms, learner: Learner, mean: Array, scale: Array) -> Terms:
    """The same in shared units; counts and classes keep their own."""
    inside = replace(
        terms, mean=mean[:-1], scale=np.where(scale[:-1] > 0, scale[:-1], 1.0)
    )
    if has_own_labels(terms, learner):
        return inside
    label = float(scale[-1] or 1.0)
    return replace(inside, label_mean=float(mean[-1]), label_scale=label)


def has_own_labels(terms: Terms, learner: Learner) -> bool:
    """Whether labels are in no units: classes, and counts."""
    return bool(terms.classes) or traits_of(learner).task == "counts"
