"""Own rows and those of other devices, fitted together.

What few rows leave open is not known better from the mean of several models that each left it open.
From the rows of a whole kind it is. The rows of device j count for device i, from the posterior q
of centres (`class_near`), as

    min(1, q_ij / sum over k of q_ik^2)

since 1 / sum of q^2 is how many centres q amounts to: of m that are equally likely each counts in
full, however many m is, and one that is hardly likely beside them counts for hardly anything.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from persfl.devices import Devices
from persfl.methods.mixed.class_fits import Axes, pulled
from persfl.methods.mixed.class_rows import ClassRows, like_counts
from persfl.types import Array, IntArray

STEPS = 30  # rows of several devices: fewer steps are enough


class Company(NamedTuple):
    """For each device the devices `who` (n, many) whose rows it is fitted with, itself the first,
    and what a row of each counts for, `weight` (n, many).
    """

    who: IntArray
    weight: Array

    def own(self, counts: IntArray) -> Array:
        """(n,) the share of own rows, of devices that have so many."""
        heavy = self.weight * counts[self.who]
        return np.asarray(heavy[:, 0] / np.maximum(heavy.sum(axis=1), 1e-300))


def likely_company(centres: IntArray, share: Array) -> Company:
    """From the likeliest centres (n, some) of each device and their shares.

    >>> likely_company(
    ...     np.array([[1, 2, 3]]), np.array([[0.5, 0.5, 0.0]])
    ... ).weight.tolist()
    [[1.0, 1.0, 1.0, 0.0]]
    """
    weight = np.minimum(share / (share**2).sum(axis=1, keepdims=True), 1.0)
    me = np.arange(len(centres))
    ones = np.ones(len(centres))
    return Company(np.column_stack([me, centres]), np.column_stack([ones, weight]))


def together(
    rows: Devices,
    whole: ClassRows,
    copy: int,
    company: Company,
    centre: Array,
    variance: Array,
    begin: Array | None = None,
) -> Array:
    """(n, d, classes) models of one copy, pulled toward `centre` (d, classes); steps begin there,
    or at the models `begin` (n, d, classes).
    """
    found = np.empty((len(rows), *centre.shape))
    counts = rows.counts[company.who].sum(axis=1)
    for some in like_counts(counts, max(centre.shape)):
        theirs = Company(company.who[some], company.weight[some])
        taken, weight = _rows_of(rows, theirs)
        weight = weight * np.where(taken >= 0, whole.weight[copy, 0, taken], 0.0)
        here = ClassRows(some, whole.Z[0, taken], whole.Y[0, taken], weight[None])
        start = np.broadcast_to(centre, (1, len(some), *centre.shape))
        axes = Axes.of(here, variance)
        first = None
        if begin is not None:
            back = np.swapaxes(axes.B / variance[:, None], 1, 2)
            first = (back @ (begin[some] - centre))[None]
        found[some] = pulled(here, axes, start, steps=STEPS, begin=first)[0]
    return found


def _rows_of(rows: Devices, company: Company) -> tuple[IntArray, Array]:
    """(lines, most) the rows of all devices in a line, and their weights; -1 is no row."""
    counts = rows.counts[company.who].sum(axis=1)
    found = np.full((len(counts), max(1, int(counts.max()))), -1)
    weight = np.zeros(found.shape)
    for k, line in enumerate(company.who):
        at = [np.arange(rows.start[j], rows.start[j + 1]) for j in line]
        found[k, : counts[k]] = np.concatenate(at)
        weight[k, : counts[k]] = np.repeat(company.weight[k], rows.counts[line])
    return found, weight
