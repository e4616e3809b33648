"""Errors on rows held back, of a run and of runs without some devices: for all kinds of refits."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtrit

from persfl.devices import Devices
from persfl.evaluation.dependence import Rise
from persfl.evaluation.row_order import RowOrder
from persfl.evaluation.split import some_rows, split_masks, taken
from persfl.evaluation.who_helps import helper_table
from persfl.learners.responses import respond_each

if TYPE_CHECKING:
    from persfl.fitting.setup import Setup
    from persfl.training.state import State
    from persfl.trust import Trust
    from persfl.types import Array, IntArray
    from persfl.units import Units

SMALL = 0.05  # of the mean error: so much is added to all, that none near zero decides
HELD = 0.25  # where the fit itself held nothing back


class KnownRows(NamedTuple):
    """Rows to learn from, and what is known of their order."""

    rows: Devices
    order: RowOrder

    def of(self, which: IntArray) -> KnownRows:
        """Those of some devices: `which` are left."""
        mine = np.isin(self.rows.owner, which)
        there = np.isin(np.arange(len(self.rows)), which)
        return KnownRows(taken(self.rows, there), self.order.at(mine))


def held_apart(
    setup: Setup, rows: Devices, order: RowOrder | None
) -> tuple[KnownRows, Devices]:
    """What to learn from, and what is held back as a trial of the fit would: the latest rows of
    those in the order of time, whole keys. Devices that learn from nothing are left out.
    """
    settings = setup.settings
    order = order or RowOrder(ordered=settings.ordered)
    share = settings.holdout or HELD
    fold = split_masks(rows, share, seed=setup.seed, classes=setup.classes, order=order)
    there = np.bincount(rows.owner[fold.learn], minlength=len(rows)) > 0
    learn = fold.learn & there[rows.owner]
    some = there[rows.owner]
    held = some_rows(taken(rows, there), fold.judge[some])
    return KnownRows(taken(rows, there, learn), order.at(learn)), held


def rerun(setup: Setup, learn: KnownRows) -> tuple[State, Units]:
    """The method on these rows."""
    units = setup.units(learn.rows)
    inside = units.inside(learn.rows)
    task = setup.task(inside, setup.public(learn.rows), learn.order)
    return setup.method.run(task, stage="removal", keep=None), units


def errors_of(
    setup: Setup, state: State, units: Units, held: Devices, left: IntArray
) -> Array:
    """(n,) errors on rows held back, by a run of the devices `left`; NaN for others and without
    any rows.
    """
    n = len(held)
    place = np.full(n, -1)
    place[left] = np.arange(len(left))
    owner = place[held.owner]
    there = owner >= 0
    mine = owner[there]
    X = units.features(held.X[there], mine)
    said = respond_each(setup.learner, state.models, X, mine, setup.classes)
    y = held.y[there]
    if setup.classes:
        true = y.astype(np.int64)[:, None] == np.arange(setup.classes)
        losses = ((said - true) ** 2).sum(axis=1)
    else:
        losses = (units.outside(said, mine) - y) ** 2
    weight = held.weight[there]
    whose = held.owner[there]
    total = np.bincount(whose, weights=weight, minlength=n)
    summed = np.bincount(whose, weights=losses * weight, minlength=n)
    found = np.full(n, np.nan)
    found[total > 0] = summed[total > 0] / total[total > 0]
    return found


def named_devices(trust: Trust, many: int) -> NDArray[np.bool_]:
    """(n, n) which devices are named for each: the first so many of those asked, most alike first,
    and of equals the largest part of its model.
    """
    table = ranked_helpers(trust)
    first = table.groupby("device", sort=False).head(many)
    found = np.zeros((trust.n, trust.n), dtype=bool)
    found[first["device"].to_numpy(int), first["peer"].to_numpy(int)] = True
    return found


def ranked_helpers(trust: Trust) -> pd.DataFrame:
    """Who helps whom by positions, most alike first."""
    table = helper_table(trust, list(range(trust.n)))
    return table.sort_values(["alike", "share"], ascending=False, kind="stable")


def mean_rise(logs: Array) -> Rise:
    """Of a typical target: the mean of its logarithms over targets, with Student's interval."""
    count = len(logs)
    mean = float(logs.mean())
    half = float("inf")
    if count > 1:
        half = float(stdtrit(count - 1, 0.975) * logs.std(ddof=1) / np.sqrt(count))
    return Rise(*np.expm1([mean, mean - half, mean + half]).tolist())
