"""Does my model depend on them? Errors on unseen rows after helpers are taken out of the fleet.

Every device holds rows back, as in a trial. A run on the others says who helps whom. For a sample
of targets the run is made again without the devices named for that target, and again without as
many drawn at random; what the target's error rises by, on its rows held back, is what they are
worth to it. Whoever is named must matter more than a stranger.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from persfl.checks import whole
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.evaluation.dependence import Removal
from persfl.fitting.setup import Setup
from persfl.fitting.unseen_errors import (
    SMALL,
    errors_of,
    held_apart,
    mean_rise,
    ranked_helpers,
    rerun,
)
from persfl.seeds import stream

if TYPE_CHECKING:
    from persfl.evaluation.row_order import RowOrder
    from persfl.fitting.fitted import Fitted


def removal(
    fitted: Fitted,
    rows: Devices,
    order: RowOrder | None = None,
    *,
    many: int = 10,
    targets: int = 12,
    seed: int | None = None,
) -> Removal:
    """Refit a fitted fleet without helpers; `rows` and their `order` are those it was fitted to.

    `many` devices are taken out at a time, at most a third of the others; `targets` are drawn by
    the seed, which is that of the fit unless another is given.
    """
    n = len(rows)
    if n < 4:
        raise InputError(f"taking helpers out takes at least 4 devices. Got {n}.")
    settings = fitted.settings
    seed = settings.seed if seed is None else seed
    setup = Setup(
        fitted.learner, replace(settings, seed=seed), fitted.schema, fitted.method
    )
    learn, held = held_apart(setup, rows, order)
    n = len(held)
    many = min(whole("many", many, least=1), (n - 1) // 3)
    able = np.flatnonzero(held.counts > 0)
    if not len(able):
        raise InputError("no device has the four rows it takes to hold any back.")
    random = stream(seed, "removal").generator()
    least = whole("targets", targets, least=2)
    drawn = np.sort(random.permutation(able)[:least])
    state, units = rerun(setup, learn)
    helpers = ranked_helpers(state.trust)
    found = []
    for i in drawn.tolist():
        others = np.delete(np.arange(n), i)
        named = helpers.loc[helpers["device"] == i, "peer"].to_numpy(dtype=np.int64)
        strangers = random.choice(others, many, replace=False)
        errors = [float(errors_of(setup, state, units, held, np.arange(n))[i])]
        for gone in (named[:many], strangers):
            left = np.setdiff1d(np.arange(n), gone)
            again, scale = rerun(setup, learn.of(left))
            errors.append(float(errors_of(setup, again, scale, held, left)[i]))
        found.append((held.ids[i], *errors))
    table = pd.DataFrame(found, columns=["device", "all", "named", "random"])
    small = SMALL * float(table["all"].mean())
    logs = np.log(table[["all", "named", "random"]].to_numpy() + max(small, 1e-300))
    everybody, without, others = logs.T
    rises = (without - everybody, others - everybody, without - others)
    refits = 1 + 2 * len(drawn)
    named, random_ones, beyond = (mean_rise(rise) for rise in rises)
    count = len(table)
    return Removal(named, random_ones, beyond, many, refits, count, table)
