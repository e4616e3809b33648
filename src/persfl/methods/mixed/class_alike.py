"""Who is alike before any personal model is known: by rows, not by models.

Own models of few rows and many coefficients are too rough to tell whose rows they go with. What
rows themselves are like is known better. Three moments of a device's rows are compared by their
angles, each number in units of its spread over the fleet:

    mean of z                          what features are like here
    mean of (y - 1 / classes) z'       what they are like where a class is: P(x | y)
    mean of (y - p) z'                 what the fleet's model gets wrong here: P(y | x)

They are the steps that a device would take from three models of the fleet. Likenesses add up, each
sharpened, so that one clear likeness is enough. The rows of the likest devices are then fitted
together with the device's own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from persfl.devices import Devices
from persfl.methods.mixed.class_fits import chances
from persfl.methods.mixed.class_rows import ClassRows
from persfl.methods.mixed.class_together import Company, together
from persfl.types import Array, IntArray

SHARP = 4.0  # one clear likeness out of three is enough
LIKEST = 8  # devices whose rows are fitted together; at most a quarter of the fleet


def alike_models(
    rows: Devices,
    whole: ClassRows,
    parts: Sequence[ClassRows],
    centre: Array,
    variance: Array,
    among: IntArray,
) -> tuple[Array, Array]:
    """(copies, n, d, classes) by own rows and those of the likest devices `among` all, pulled
    toward `centre` (copies, d, classes); and the share of own rows (n,).
    """
    n = len(rows)
    found = np.empty((len(centre), n, *centre.shape[1:]))
    own = np.zeros(n)
    for copy, model in enumerate(centre):
        who = _likest(_moments(parts, copy, model, n), among)
        company = Company(who, np.ones(who.shape))
        if copy == 0:
            own = company.own(rows.counts)
        found[copy] = together(rows, whole, copy, company, model, variance)
    return found, own


def _moments(
    parts: Sequence[ClassRows], copy: int, centre: Array, n: int
) -> list[Array]:
    """Three times (n, numbers): of features, of features with classes, of what is missed."""
    d, classes = centre.shape
    features = np.zeros((n, d))
    plain = np.zeros((n, classes * d))
    missed = np.zeros((n, classes * d))
    for rows in parts:
        weight = rows.weight[copy]
        share = weight / np.maximum(weight.sum(axis=1, keepdims=True), 1e-12)
        heavy = np.swapaxes(rows.Z * share[..., None], 1, 2)
        features[rows.who] = heavy.sum(axis=2)
        even = heavy @ (rows.Y - 1.0 / classes)
        plain[rows.who] = even.reshape(len(even), -1)
        wrong = heavy @ (rows.Y - chances(rows.Z @ centre))
        missed[rows.who] = wrong.reshape(len(wrong), -1)
    return [features, plain, missed]


def _likest(moments: Sequence[Array], among: IntArray) -> IntArray:
    """(n, 1 + likest) each device itself, and those that are most like it."""
    n = len(moments[0])
    many = min(len(among) - 1, LIKEST, max(len(among) // 4, 1))
    alike = np.zeros((n, len(among)))
    for each in moments:
        away = (each - each.mean(axis=0)) / (each.std(axis=0) + 1e-9)
        size = np.linalg.norm(away, axis=1, keepdims=True)
        away = away / np.maximum(size, 1e-12)
        alike += np.exp(SHARP * away @ away[among].T)
    alike[among == np.arange(n)[:, None]] = -np.inf
    best = np.argsort(-alike, axis=1, kind="stable")[:, :many]
    return np.column_stack([np.arange(n), among[best]])
