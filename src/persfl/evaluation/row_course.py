"""Whether rows go on from one to the next, or together at several devices, though nobody said so.

Rows drawn at random from such a table lie among the rows that are learned from. What they say of
rows that come later is too good. Three things are looked at, each in standard deviations of what
chance does:

    next        what one model for all leaves goes on from a device's row to its next one
    own         the same once each device has its own model: models themselves change
    together    the first, second, ... rows of different devices are off in the same direction

For the first two the order of a device's rows is drawn anew in thought. With s_t what a row asks of
a model (what is left of its label times its columns, less the device's mean) and K_tu = s_t' s_u,
the sum of K over rows that stand side by side has a mean and a variance over all orders that
follow from a few sums of K (Mantel 1967). They are exact, whatever the rows are like.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from persfl.evaluation.row_order import RowOrder
from persfl.evaluation.split import taken

if TYPE_CHECKING:
    from persfl.devices import Devices
    from persfl.types import Array, IntArray

# standard deviations above what chance does; a device more or less is no evidence
CLEARLY = 4.0
FEWEST = 5  # keys that several devices share
ENOUGH = 1000  # devices that are looked at
LONG = 8  # rows of the median device; two fifths of fewer are no past to learn from


class RowCourse(NamedTuple):
    """Each in standard deviations of what chance does."""

    next: float
    own: float
    together: float


def found_order(rows: Devices, order: RowOrder) -> RowOrder:
    """The same; or, where nobody said anything, no column tells where a row stands, and models
    would be judged too well by rows hidden at random, that rows are in the order of time.

    >>> from persfl.devices import Devices
    >>> draw = np.random.default_rng(0)
    >>> paths = draw.normal(size=(20, 12)).cumsum(axis=1)
    >>> rows = Devices.of([(np.ones((12, 1)), path) for path in paths], quiet=True)
    >>> found_order(rows, RowOrder()).ordered
    True
    """
    if not order.random or len(rows) < 2 or np.median(rows.counts) < LONG:
        return order
    if sorted_by_a_column(rows):
        return order
    course = course_of(rows)
    if course.together > CLEARLY:  # places are a clock that devices share
        place = _places(rows).astype(np.float64)
        return RowOrder(ordered=True, time=place, found=True)
    late = course.own > CLEARLY
    return RowOrder(ordered=late, found=late)


def sorted_by_a_column(rows: Devices) -> bool:
    """Whether there is a column that, at most devices, changes and never falls (or never rises)
    from row to row: a time or a dose, by which somebody sorted the table.

    Models see it, so rows go on by what they bend along it, and nobody knows whether rows beyond
    are to be predicted or rows between.

    >>> from persfl.devices import Devices
    >>> dose, luck = np.arange(8.0), np.random.default_rng(0).normal(size=(3, 8))
    >>> devices = [(np.column_stack([dose, each]), each) for each in luck]
    >>> sorted_by_a_column(Devices.of(devices, quiet=True))
    True
    >>> sorted_by_a_column(Devices.of([(X[:, 1:], y) for X, y in devices], quiet=True))
    False
    """
    some, _ = some_devices(rows)
    step = np.diff(some.X, axis=0)[some.owner[1:] == some.owner[:-1]]
    owner = some.owner[1:][some.owner[1:] == some.owner[:-1]]
    up, down = np.zeros((2, len(some), some.features), dtype=bool)
    np.logical_or.at(up, owner, step > 0)
    np.logical_or.at(down, owner, step < 0)
    most = np.maximum((up & ~down).sum(axis=0), (down & ~up).sum(axis=0))
    return bool((2 * most > len(some)).any())


def course_of(rows: Devices) -> RowCourse:
    """Of labels that are numbers."""
    some, _ = some_devices(rows)
    left = pooled_leftovers(some, 0)
    X = _standard(some.X)
    return RowCourse(
        goes_on(X, left[:, 0], some),
        goes_on(X, _own_leftovers(X, left[:, 0], some), some),
        hangs_together(_places(some), some, left),
    )


def _places(rows: Devices) -> IntArray:
    """(rows,) where each stands among its device's, from 0."""
    return np.asarray(np.arange(len(rows.owner)) - rows.start[rows.owner])


def some_devices(rows: Devices) -> tuple[Devices, IntArray]:
    """At most so many that looking takes no time, and which rows are theirs."""
    which = np.arange(len(rows)) % -(-len(rows) // ENOUGH) == 0
    return taken(rows, which), np.flatnonzero(which[rows.owner])


def goes_on(X: Array, left: Array, rows: Devices) -> float:
    """How far what is `left` (rows,) goes on from row to row within devices.

    >>> from persfl.devices import Devices
    >>> draw = np.random.default_rng(0)
    >>> rows = Devices.of([(np.zeros((9, 1)), np.zeros(9))] * 20, quiet=True)
    >>> own = draw.normal(size=(20, 9))
    >>> wandering = own.cumsum(axis=1)
    >>> (
    ...     goes_on(rows.X, own.ravel(), rows) < 3,
    ...     goes_on(rows.X, wandering.ravel(), rows) > 5,
    ... )
    (True, True)
    """
    columns = max(X.shape[1], 1)
    wide = np.column_stack([np.ones(len(X)), X / np.sqrt(columns)])
    asked = left[:, None] * wide
    more = 0.0
    chance = 0.0
    for begin, end in zip(rows.start[:-1], rows.start[1:], strict=True):
        counts = rows.weight[begin:end] > 0
        here = asked[begin:end][counts]
        if len(here) >= 4:
            found, usual, spread = _side_by_side(here)
            more += found - usual
            chance += spread
    return more / float(np.sqrt(chance)) if chance > 1e-12 else 0.0


def _side_by_side(asked: Array) -> tuple[float, float, float]:
    """The sum of products s_t' s_u over rows side by side, its mean and its variance over all
    orders of the rows (rows, columns); the size of all together is 1.
    """
    m = len(asked)
    S = asked - asked.mean(axis=0)
    size = float((S**2).sum())
    if size <= 1e-300:
        return 0.0, 0.0, 0.0
    S = S / np.sqrt(size)
    # sums over pairs of rows: who is beside whom (A), and K; rows of K add up to 0 with its
    # diagonal
    A1 = 2.0 * (m - 1)
    A2 = 4.0 * m - 6.0
    each = (S**2).sum(axis=1)
    K2 = float((each**2).sum())
    small = S @ S.T if m < S.shape[1] else S.T @ S  # their squares have one sum
    K1 = float((small**2).sum()) - K2
    two = m * (m - 1.0)
    three = two * (m - 2.0)
    four = three * (m - 3.0)
    mean = -A1 / two
    pairs = 2.0 * A1 * K1 / two
    chains = 4.0 * (A2 - A1) * (K2 - K1) / three
    A0 = A1**2 + 2.0 * A1 - 4.0 * A2
    K0 = 1.0 + 2.0 * K1 - 4.0 * K2
    apart = A0 * K0 / four
    found = 2.0 * float((S[1:] * S[:-1]).sum())
    return found, mean, pairs + chains + apart - mean**2


def _standard(X: Array) -> Array:
    """Columns about their mean, in units of their spread."""
    wide = X - X.mean(axis=0)
    spread = wide.std(axis=0)
    return np.asarray(wide / np.where(spread > 0, spread, 1.0))


def _own_leftovers(X: Array, left: Array, rows: Devices) -> Array:
    """What every device's own model leaves of that: ridge, as strong as a row per coefficient."""
    Z = np.column_stack([np.ones(len(X)), X])
    found = left.copy()
    wide = Z.shape[1]
    for begin, end in zip(rows.start[:-1], rows.start[1:], strict=True):
        here = Z[begin:end]
        label = left[begin:end]
        if len(here) < wide:  # the same by rows, of which there are fewer
            kept = here @ here.T + wide * np.eye(len(here))
            found[begin:end] = wide * np.linalg.solve(kept, label)
        else:
            kept = here.T @ here + wide * np.eye(wide)
            model = np.linalg.solve(kept, here.T @ label)
            found[begin:end] -= here @ model
    return found


def hangs_together(keys: IntArray, rows: Devices, left: Array) -> float:
    """How far rows of equal keys are off in the same direction at different devices, in standard
    deviations of what devices have that know nothing of each other.

    `left` (rows,) or (rows, classes) is what one model for all leaves of the labels. Over pairs of
    devices the products of what is left at equal keys are added up. A device's leftovers may go up
    and down as they like: to know what chance does, each device's sign is drawn anew, which leaves
    its own course as it is.

    >>> from persfl.devices import Devices
    >>> draw = np.random.default_rng(0)
    >>> rows = Devices.of([(np.zeros((9, 1)), np.zeros(9))] * 20, quiet=True)
    >>> keys = np.tile(np.arange(9), 20)
    >>> shock = draw.normal(size=9)[keys]
    >>> own = draw.normal(size=180)
    >>> hangs_together(keys, rows, own) < 3, hangs_together(keys, rows, own + shock) > 5
    (True, True)
    """
    owner = rows.owner
    _, key = np.unique(keys, return_inverse=True)
    many = int(key.max()) + 1
    left = left.reshape(len(left), -1)
    pair, cell = np.unique(owner * many + key, return_inverse=True)
    device = pair // many
    which = pair % many
    shared = np.bincount(which, minlength=many)[which] > 1
    if len(np.unique(which[shared])) < FEWEST:
        return 0.0
    n = len(rows)
    share = rows.weight
    weight = np.maximum(np.bincount(cell, weights=share), 1e-300)
    level = np.maximum(np.bincount(owner, weights=share, minlength=n), 1e-300)
    sums = 0.0
    spread = 0.0
    for column in left.T:
        summed = np.bincount(owner, weights=share * column, minlength=n)
        mean = summed / level
        away = share * (column - mean[owner])
        each = np.bincount(cell, weights=away) / weight * shared
        total, chance = _products(device, which, each, n, many)
        sums += total
        # what classes leave goes together: their deviations are added, not their variances
        spread += np.sqrt(max(chance, 0.0))
    return float(sums / spread) if spread > 1e-9 else 0.0


def _products(
    device: IntArray, key: IntArray, each: Array, devices: int, keys: int
) -> tuple[float, float]:
    """Products over ordered pairs of different devices at equal keys: their sum, and its variance
    where every device's sign is drawn.

    A device's size is 1, so that loud ones say no more than others.
    """
    from scipy.sparse import csr_array  # takes long to load

    size = np.sqrt(np.bincount(device, weights=each**2, minlength=devices))
    each = each / np.maximum(size, 1e-300)[device]
    table = csr_array((each, (device, key)), shape=(devices, keys))
    within = float((each**2).sum())
    of_keys = np.asarray(table.sum(axis=0))
    total = float((of_keys**2).sum()) - within
    # of all products between devices: 2 * sum of squares, from the smaller of the two tables
    small = table.T @ table if keys < devices else table @ table.T
    own = np.bincount(device, weights=each**2, minlength=devices)
    every = float((small.multiply(small)).sum())
    alone = float((own**2).sum())
    return total, 2.0 * (every - alone)


def pooled_leftovers(rows: Devices, classes: int) -> Array:
    """What one linear model for all rows leaves of the labels, or of each class's indicator."""
    columns = _standard(rows.X)
    X = np.column_stack([columns, np.ones(len(columns))])
    y = rows.y[:, None]
    if classes:
        y = (y == np.arange(classes)) + 0.0
    root = np.sqrt(rows.weight)[:, None]
    heavy = X * root
    weak = 1e-6 * max(float(rows.weight.sum()), 1e-300)
    if len(X) < X.shape[1]:  # the same from products of rows, of which there are fewer
        gram = heavy @ heavy.T + weak * np.eye(len(X))
        model = heavy.T @ np.linalg.solve(gram, root * y)
    else:
        gram = heavy.T @ heavy + weak * np.eye(X.shape[1])
        model = np.linalg.solve(gram, heavy.T @ (root * y))
    return np.asarray(y - X @ model)
