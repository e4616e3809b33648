"""Do models depend on their helpers? Told by a few refits, as a fit can afford them.

Every refit takes out the devices named for one target, so all others lose some of theirs too, more
or fewer. What an error on rows held back rises by, against how many of its named devices are gone,
says what those are worth; what it rises by where no more of them are gone than by chance says what
any devices are worth. Devices and refits have levels of their own, so nobody is compared with
another one, and a refit that hurts everybody tells nothing of names.

Models are those without trees, whose refits cost little. `persfl.fitting.removal` refits everything
for every target.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtrit

from persfl.evaluation.dependence import Removal, Rise
from persfl.evaluation.row_order import RowOrder
from persfl.evaluation.split import some_rows, split_masks, taken
from persfl.fitting.unseen_errors import (
    HELD,
    SMALL,
    errors_of,
    named_devices,
)
from persfl.learners.linear import Linear
from persfl.methods import Blend
from persfl.methods.mixed.linear_rule import BOOSTED
from persfl.seeds import stream

if TYPE_CHECKING:
    from persfl.devices import Devices
    from persfl.fitting.setup import Setup
    from persfl.training.state import State
    from persfl.types import Array, IntArray, Mask
    from persfl.units import Units

REFITS = 10  # without trees: a fit of some dozens of devices takes a quarter to a half longer
MANY = 10  # devices that are taken out at a time; at most a third of the others
FEWEST = 12  # devices
# devices: refits without trees grow with their square, and of more take longer than the fit
MOST = 200
MOSTLY = 0.8  # of its named devices: a target that lost so many is accounted for
DRAWS = 1000
WIDEST = 3.0  # logarithms: errors twenty times as large are as bad as any


def quick_removal(
    setup: Setup, rows: Devices, order: RowOrder, seen: RowOrder
) -> Removal | None:
    """What errors rise by without named devices; None where that costs too much of a fit, or there
    are too few devices: it is done for linear regressions with trees beside them.
    """
    method = setup.method
    n = len(rows)
    if not isinstance(method, Blend) or not _is_cheap(setup, method, rows):
        return None
    many = min(MANY, (n - 1) // 3)
    plain = replace(setup, method=replace(method, trees=False))
    holdout = setup.settings.holdout or HELD
    fold = split_masks(rows, holdout, seed=setup.seed, order=order)
    held = some_rows(rows, fold.judge)
    learned = np.bincount(rows.owner[fold.learn], minlength=n)
    if (learned == 0).any():
        return None

    def errors(there: Mask) -> tuple[Array, State]:
        """(n,) without some devices, NaN for those; and who was near whom."""
        learn = taken(rows, there, fold.learn)
        known = seen.at(fold.learn & there[rows.owner])
        state, units = _run(plain, learn, known)
        return errors_of(plain, state, units, held, np.flatnonzero(there)), state

    base, state = errors(np.ones(n, dtype=bool))
    named = named_devices(state.trust, many)
    able = np.isfinite(base) & (named.sum(axis=1) == many)
    targets = _targets(named, able, stream(setup.seed, "quick removal").generator())
    if len(targets) < 2:
        return None
    gone = named[targets]
    without = np.stack([errors(~mine)[0] for mine in gone])
    small = max(SMALL * float(np.nanmean(base)), 1e-300)
    rise = np.log(without + small) - np.log(base + small)
    overlap = gone.astype(np.float64) @ named.T / many
    rise = np.where(able & ~gone, rise, np.nan)
    rises = _rises(rise, overlap, many / (n - 1))
    worst = np.where(np.isfinite(rise), overlap, -1.0).argmax(axis=0)
    every = np.arange(n)
    table = pd.DataFrame(
        {
            "device": rows.ids,
            "all": base,
            "gone": overlap[worst, every],
            "without": without[worst, every],
        }
    )
    count = int(np.isfinite(rise).any(axis=0).sum())
    return Removal(*rises, many, 1 + len(targets), count, table)


def _is_cheap(setup: Setup, method: Blend, rows: Devices) -> bool:
    """Whether most of a fit's time goes into trees, which refits leave out."""
    learner = setup.learner
    linear = isinstance(learner, Linear) and learner.kind == "squared"
    grown = method.trees and len(rows.y) >= BOOSTED
    judged = setup.settings.holdout > 0
    return linear and grown and judged and FEWEST <= len(rows) <= MOST


def _run(setup: Setup, learn: Devices, order: RowOrder) -> tuple[State, Units]:
    units = setup.units(learn)
    task = setup.task(units.inside(learn), None, order)
    return setup.method.run(task, stage="removal", keep=None), units


def _targets(named: Mask, able: Mask, random: np.random.Generator) -> IntArray:
    """Whose named devices to take out: one after the other, whoever's are those of most devices
    that have not lost theirs yet.
    """
    shared = named.astype(np.float64) @ named.T / np.maximum(named.sum(axis=1), 1)
    luck = random.random(len(named))
    fresh = able.copy()  # whose named devices were taken out for nobody
    left = able.copy()  # who has not lost most of its own
    found: list[int] = []
    while fresh.any() and len(found) < REFITS:
        reach = ((shared >= MOSTLY) & left[:, None]).sum(axis=0) + luck
        best = int(np.where(fresh, reach, -1.0).argmax())
        found.append(best)
        fresh[best] = False
        left &= shared[:, best] < MOSTLY
    return np.array(found, dtype=np.int64)


def _rises(rise: Array, overlap: Array, chance: float) -> tuple[Rise, Rise, Rise]:
    """Without all that are named, without as many at random, and the difference, from (refits,
    devices) rises in logarithms and shares of the named that are gone.

    Intervals reach over a bootstrap of devices and a jackknife of refits.
    """
    whole = _estimates(rise, overlap, chance)[0]
    random = stream(0, "devices drawn for removal", rise.shape[1]).generator()
    n = rise.shape[1]
    weights = random.multinomial(n, np.full(n, 1.0 / n), size=DRAWS).astype(np.float64)
    drawn = np.quantile(
        _estimates(rise, overlap, chance, weights), [0.025, 0.975], axis=0
    )
    refits = len(rise)
    others = np.stack(
        [
            _estimates(np.delete(rise, k, 0), np.delete(overlap, k, 0), chance)[0]
            for k in range(refits)
        ]
    )
    spread = others.std(axis=0) * np.sqrt(refits - 1)
    half = stdtrit(refits - 1, 0.975) * spread
    low = np.minimum(drawn[0], whole - half)
    high = np.maximum(drawn[1], whole + half)
    ends = np.clip(np.stack([whole, low, high], axis=1), -WIDEST, WIDEST)
    found = np.expm1(ends).tolist()
    return Rise(*found[0]), Rise(*found[1]), Rise(*found[2])


def _estimates(
    rise: Array, overlap: Array, chance: float, weights: Array | None = None
) -> Array:
    """(draws, 3) named, random, difference."""
    known = np.isfinite(rise)
    y = _centred(np.where(known, rise, 0.0), known)
    x = _centred(np.where(known, overlap, 0.0), known)
    count = np.maximum(known.sum(axis=0), 1)
    each = np.stack(
        [
            (x * y).sum(axis=0),
            (x * x).sum(axis=0),
            np.where(known, rise, 0.0).sum(axis=0) / count,
            np.where(known, overlap, 0.0).sum(axis=0) / count,
            known.any(axis=0).astype(np.float64),
        ]
    )
    drawn = np.ones((1, rise.shape[1])) if weights is None else weights
    xy, xx, level, gone, many = each @ drawn.T
    slope = xy / np.maximum(xx, 1e-12)
    level = level / np.maximum(many, 1.0)
    gone = gone / np.maximum(many, 1.0)
    named = level + slope * (1.0 - gone)
    strangers = level + slope * (chance - gone)
    return np.stack([named, strangers, named - strangers], axis=1)


def _centred(values: Array, known: NDArray[np.bool_]) -> Array:
    """Without the levels of devices and refits."""
    found = values
    for _ in range(20):
        for axis in (0, 1):
            count = np.maximum(known.sum(axis=axis, keepdims=True), 1)
            mean = found.sum(axis=axis, keepdims=True) / count
            found = np.where(known, found - mean, 0.0)
    return found
