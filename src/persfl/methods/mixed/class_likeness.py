"""Who is like whom among devices with classes: a chance for every pair, by hidden rows.

A device's hidden rows are judged by the models of all others, which have not seen them (the mean of
what neighbours are offered). Two things make a pair alike:

    better    j's model makes the labels of i likelier than one model for all does, and than the
              models of other devices do in the mean; and i's model those of j
    profile   over all models, i and j find the same ones right and the same ones wrong: chances of
              labels, in their `AXES` main directions, differ by no more than rows of one device do

What both say is then asked of third devices (`common_friends`).

Whether there are kinds at all is asked of the whole fleet, by pools of offers whose shares were
learned from other folds. There are kinds where hidden rows are likelier, by `KINDS` standard errors
over devices, with neighbours among the offers than without any. All devices are alike where no
personal model makes them likelier than one model for all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import expit, ndtr

from persfl.evaluation.common_friends import NOTHING, by_common_friends
from persfl.methods.mixed.class_fits import log_chances
from persfl.methods.mixed.class_hidden import JudgedRows
from persfl.methods.mixed.likeness import Likeness
from persfl.methods.mixed.log_pool import pool_shares
from persfl.types import Array, IntArray, Mask

# Standard errors. In 24 fleets of logistic models, 3 to 30 rows a device, it was 0.8 at most
# without kinds (all alike, or all different)
KINDS = 3.0
# Standard errors that luck alone makes of personal models. In the same fleets it was 0.0 at most
# where all were alike; where all differed 1.9 at least from five rows a device on
LUCK = 1.5
LIKE = 0.8  # the chance from which on a pair may be called alike, and ...
SOME = 0.05  # ... the share of all pairs that must be, before kinds are spoken of
AXES = 5  # main directions in which profiles are compared
USUAL = 5.0  # rows of the usual spread that are added to a pair's own
LOWEST = -5.0  # log chances below are as bad as any: one row decides nothing
SURE = 10.0  # standard errors of which no more can be told
ROOM = 2**24  # chances of hidden rows at a time


def class_likeness(
    rows: JudgedRows,
    told: Array,
    neighbours: Sequence[bool],
    said: Array,
    centres: IntArray,
    devices: int,
) -> Likeness:
    """From log chances `told` (rows, offers, classes), the first of one model for all, with which
    of the offers come from `neighbours`; and those of the labels by the models of `centres`, `said`
    (rows, centres).
    """
    label = rows.label[:, None]
    fleet = np.take_along_axis(told[:, 0], label, axis=1)[:, 0]
    evidence = _evidence(rows, devices)
    theirs = np.maximum(said, LOWEST)
    better = _better(theirs, np.maximum(fleet, LOWEST), rows.owner, evidence)
    chance = ndtr(_of_both(better, centres, devices))
    odds = _same_profile(np.exp(said), rows.owner, evidence, centres, devices)
    # evidence against a pair counts in full; evidence for it is the models' to give
    both = np.where(odds > 0, chance, 2.0 * chance * expit(odds))
    mine = centres[None, :] == np.arange(devices)[:, None]
    who, at = np.nonzero(~mine)
    found = np.full(both.shape, NOTHING)
    found[who, at] = by_common_friends(who, centres[at], both[who, at])
    alone = np.flatnonzero(~np.array(neighbours))
    without = _pooled(rows, told[:, alone])
    everything = _pooled(rows, told)
    kinds = _standard_errors(everything - without, rows, devices) > KINDS
    kinds = kinds and float((found[who, at] >= LIKE).mean()) >= SOME
    gain = _standard_errors(everything - fleet, rows, devices)
    whole = 0.0 if kinds else float(ndtr(LUCK - gain))
    sure = 1.0 if kinds else 0.5
    found = whole + (1.0 - whole) * sure * found
    return Likeness(np.where(mine, np.nan, found), whole, bool(kinds))


def judging(owner: IntArray, devices: int, centres: int) -> Mask:
    """(rows,) which hidden rows to judge by: all, or as many of each device as there is room for.

    >>> judging(np.array([0, 1, 0]), 2, 2).tolist()
    [True, True, True]
    """
    order = np.argsort(owner, kind="stable")
    first = np.searchsorted(owner[order], owner[order])
    rank = np.empty(len(owner), dtype=np.int64)
    rank[order] = np.arange(len(owner)) - first
    pairs = max(devices * centres, 1)
    return np.asarray(rank < max(4, ROOM // pairs))


def _evidence(rows: JudgedRows, devices: int) -> Array:
    """(rows,) weights that are, at each device, as much in all as the equal rows they are worth."""
    owner = rows.owner
    total = np.bincount(owner, weights=rows.weight, minlength=devices)
    square = np.bincount(owner, weights=rows.weight**2, minlength=devices)
    scale = np.divide(total, square, out=np.zeros(devices), where=square > 0)
    return np.asarray(rows.weight * scale[owner])


def _sums(values: Array, owner: IntArray, weight: Array, devices: int) -> Array:
    """(devices, columns)"""
    found = np.zeros((devices, values.shape[1]))
    np.add.at(found, owner, values * weight[:, None])
    return found


def _better(said: Array, fleet: Array, owner: IntArray, weight: Array) -> Array:
    """(n, centres) by how many standard errors each model is better than the fleet's, and than
    others' in the mean; 0 where only one is true.
    """
    n = int(owner.max(initial=-1)) + 1
    each = np.bincount(owner, weights=weight, minlength=n)
    count = np.maximum(each, 1e-9)[:, None]
    ahead = said - fleet[:, None]
    mean = _sums(ahead, owner, weight, n) / count
    square = _sums(ahead**2, owner, weight, n) / count
    spread = np.maximum(square - mean**2, 0.0)
    usual = spread.mean(axis=1, keepdims=True)
    variance = (spread * count + usual * USUAL) / (count + USUAL)
    error = np.sqrt(variance / count) + 1e-300
    beyond = mean - mean.mean(axis=1, keepdims=True)
    above = np.minimum(mean, beyond)
    below = np.maximum(mean, beyond)
    behind = np.where(below < 0, below, 0.0)
    ahead = np.where(above > 0, above, behind)
    return np.asarray(np.clip(ahead / error, -SURE, SURE))


def _of_both(z: Array, centres: IntArray, devices: int) -> Array:
    """(devices, centres) the mean of what both say, 0 where they contradict each other."""
    found = np.zeros((devices, len(centres)))
    found[: len(z)] = z
    one = found[centres]
    other = one.T
    agree = one * other > 0
    found[centres] = np.where(agree, (one + other) / 2, 0.0)
    return found


def _same_profile(
    chance: Array, owner: IntArray, weight: Array, centres: IntArray, devices: int
) -> Array:
    """(devices, centres) log odds that two devices find the same models right, as normal vectors:
    the difference of two means of rows, against one that is as wide as the fleet besides.
    """
    count = np.bincount(owner, weights=weight, minlength=devices)
    there = np.maximum(count, 1e-9)
    mean = _sums(chance, owner, weight, devices) / there[:, None]
    known = count > 0
    middle = mean[known].mean(axis=0)
    away = np.where(known[:, None], mean - middle, 0.0)
    _, _, directions = np.linalg.svd(away, full_matrices=False)
    axes = directions[:AXES].T
    place = away @ axes
    row = (chance - mean[owner]) @ axes
    freedom = max(float(weight.sum()) - int(known.sum()), 1.0)
    within = (row * weight[:, None]).T @ row / freedom
    within += 1e-9 * np.eye(len(within))
    noise = float((1.0 / there[known]).mean())
    between = place[known].T @ place[known] / max(int(known.sum()) - 1, 1)
    back = np.linalg.inv(np.linalg.cholesky(within))
    beyond = back @ between @ back.T - noise * np.eye(len(back))
    width, turn = np.linalg.eigh(beyond)
    place = place @ back.T @ turn
    apart = 1.0 / there[:, None] + 1.0 / there[centres]
    odds = np.zeros((devices, len(centres)))
    for axis, wide in zip(place.T, 2.0 * np.maximum(width, 0.0), strict=True):
        square = (axis[:, None] - axis[centres]) ** 2
        closer = 1.0 / apart - 1.0 / (apart + wide)
        odds += np.log1p(wide / apart) - square * closer
    both = known[:, None] & known[centres]
    return np.asarray(np.where(both, odds / 2, 0.0))


def _pooled(rows: JudgedRows, told: Array) -> Array:
    """(rows,) log chances of the labels by a pool whose shares other folds have told."""
    offers = told.shape[1]
    even = np.full(offers, 1.0 / offers)
    found = np.empty(len(rows.label))
    for fold in np.unique(rows.fold):
        judge = rows.fold == fold
        learn = ~judge
        shares = pool_shares(told[learn], rows.label[learn], rows.weight[learn], even)
        log = log_chances(np.einsum("o,rok->rk", shares, told[judge]))
        mine = rows.label[judge][:, None]
        found[judge] = np.take_along_axis(log, mine, axis=1)[:, 0]
    return found


def _standard_errors(gain: Array, rows: JudgedRows, devices: int) -> float:
    """The mean over devices of a row's mean gain, in its standard errors."""
    total = np.bincount(rows.owner, weights=rows.weight, minlength=devices)
    summed = np.bincount(rows.owner, weights=gain * rows.weight, minlength=devices)
    each = summed[total > 0] / total[total > 0]
    if len(each) < 2:
        return 0.0
    error = float(each.std(ddof=1)) / np.sqrt(len(each))
    return float(each.mean() / max(error, 1e-300))
