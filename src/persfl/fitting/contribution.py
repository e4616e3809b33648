"""Who helps the others most: what errors on unseen rows rise by without a device.

The fleet is fitted again without each of the devices that are asked about (leave one out). A
device's *contribution* is what the errors of all others rise by, in the mean of their logarithms,
with Student's interval over those others. Since many are asked about, of those that are said to be
`missed` at most one in ten is expected not to be (Benjamini and Hochberg). Where methods grow trees
for the whole fleet, refits leave them out: they cost most, and name nobody.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from persfl.checks import whole
from persfl.errors import InputError
from persfl.evaluation.dependence import Contributions
from persfl.evaluation.few_false import few_false, luck_of_mean
from persfl.fitting.setup import Setup
from persfl.fitting.unseen_errors import (
    SMALL,
    errors_of,
    held_apart,
    mean_rise,
    rerun,
)
from persfl.methods import Blend

if TYPE_CHECKING:
    from persfl.devices import Devices
    from persfl.evaluation.row_order import RowOrder
    from persfl.fitting.fitted import Fitted
    from persfl.trust import Trust
    from persfl.types import Array, IntArray

REFITS = 60  # devices that are left out, unless more are asked for


def contributions(
    fitted: Fitted,
    rows: Devices,
    order: RowOrder | None = None,
    *,
    refits: int = REFITS,
) -> Contributions:
    """Leave devices out, one at a time; `rows` and their `order` are those of the fit. Where there
    are more devices than `refits`, those whose models others were made of most come first.
    """
    n = len(rows)
    if n < 4:
        raise InputError(f"leaving devices out takes at least 4 of them. Got {n}.")
    most = whole("refits", refits, least=1)
    method = fitted.method
    if isinstance(method, Blend):
        method = replace(method, trees=False)
    setup = Setup(fitted.learner, fitted.settings, fitted.schema, method)
    learn, held = held_apart(setup, rows, order)
    n = len(held)
    place = {name: i for i, name in enumerate(held.ids)}
    asked = [rows.ids[j] for j in _asked_most(fitted.trust).tolist()]
    state, units = rerun(setup, learn)
    base = errors_of(setup, state, units, held, np.arange(n))
    if not np.isfinite(base).any():
        raise InputError("no device has the four rows it takes to hold any back.")
    small = max(SMALL * float(np.nanmean(base)), 1e-300)
    found = []
    luck = []
    for name in [name for name in asked if name in place][:most]:
        left = np.delete(np.arange(n), place[name])
        again, scale = rerun(setup, learn.of(left))
        errors = errors_of(setup, again, scale, held, left)
        rise = np.log(errors + small) - np.log(base + small)
        rise = rise[np.isfinite(rise)]
        found.append((name, *mean_rise(rise)))
        luck.append(_luck_of(rise))
    table = pd.DataFrame(found, columns=["device", "rise", "low", "high"])
    table = table.assign(missed=few_false(np.array(luck)))
    table = table.sort_values("rise", ascending=False, kind="stable")
    return Contributions(table.reset_index(drop=True), 1 + len(found), n)


def _luck_of(rise: Array) -> float:
    """The chance of rises this large were there none."""
    if len(rise) < 2:
        return 1.0
    facts = np.array([[rise.mean()], [rise.std(ddof=1)], [len(rise)]])
    return float(luck_of_mean(*facts)[0])


def _asked_most(trust: Trust) -> IntArray:
    """Devices by how much others took from them, then by their order."""
    known = trust.table()
    taken = np.bincount(known["peer"], weights=known["share"], minlength=trust.n)
    return np.argsort(-taken, kind="stable")
