"""Does my model depend on them? Errors on unseen rows after helpers are taken out of the fleet.

Every device holds rows back, as in a trial. A run on the others says who helps whom. For a sample
of targets the run is made again without the devices named for that target, and again without as
many drawn at random; what the target's error rises by, on its rows held back, is what they are
worth to it. Whoever is named must matter more than a stranger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from persfl.checks import many as counted
from persfl.checks import whole
from persfl.devices import Devices, offsets
from persfl.errors import InputError
from persfl.evaluation.intervals import percent
from persfl.evaluation.split import split
from persfl.evaluation.who_helps import helper_table
from persfl.fitting.setup import Setup
from persfl.learners.responses import respond_each
from persfl.seeds import stream

if TYPE_CHECKING:
    from persfl.fitting.fitted import Fitted
    from persfl.training.state import State
    from persfl.types import Array, IntArray
    from persfl.units import Units

SMALL = 0.05  # of the mean error: so much is added to all, that none near zero decides
HELD = 0.25  # where the fit itself held nothing back


class Rise(NamedTuple):
    """What a typical target's error rises by, as a share of it, and its 95 % interval."""

    rise: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{percent(self.rise)} ({percent(self.low)} to {percent(self.high)})"


class Removal(NamedTuple):
    """What was found: `named` and `random` rises, and their `difference`; `many` devices were taken
    out at a time; `table` has a target's errors with everybody, without the named, without others;
    `refits` is how many runs it took.
    """

    named: Rise
    random: Rise
    difference: Rise
    many: int
    refits: int
    table: pd.DataFrame

    @property
    def sentence(self) -> str:
        """What may be said."""
        devices = counted(self.many, "device")
        of = f"measured on unseen rows of {counted(len(self.table), 'target')}"
        if self.difference.low > 0:
            return (
                f"Without the {devices} named for each, errors rise by {self.named};"
                f" without as many random ones by {self.random}; {of}."
            )
        what = f"no {devices} matter clearly more than any other {self.many}"
        return (
            f"By this test {what}: without those named errors rise by {self.named}, without random"
            f" ones by {self.random}; {of}. What helps is the fleet as a whole."
        )


def removal(
    fitted: Fitted,
    rows: Devices,
    *,
    many: int = 10,
    targets: int = 12,
    seed: int | None = None,
) -> Removal:
    """Refit a fitted fleet without helpers; `rows` are those it was fitted to.

    `many` devices are taken out at a time, at most a third of the others; `targets` are drawn by
    the seed, which is that of the fit unless another is given.
    """
    n = len(rows)
    if n < 4:
        raise InputError(f"taking helpers out takes at least 4 devices. Got {n}.")
    many = min(whole("many", many, least=1), (n - 1) // 3)
    settings = fitted.settings
    seed = settings.seed if seed is None else seed
    setup = Setup(fitted.learner, settings, fitted.schema, fitted.method)
    learn, held = split(
        rows,
        settings.holdout or HELD,
        seed=seed,
        classes=setup.classes,
        ordered=settings.ordered,
    )
    able = np.flatnonzero(held.counts > 0)
    if not len(able):
        raise InputError("no device has the four rows it takes to hold any back.")
    random = stream(seed, "removal").generator()
    least = whole("targets", targets, least=2)
    drawn = np.sort(random.permutation(able)[:least])
    state, units = _run(setup, learn)
    helpers = helper_table(state.trust, list(range(n)))
    helpers = helpers.sort_values(["alike", "share"], ascending=False, kind="stable")
    found = []
    for i in drawn.tolist():
        others = np.delete(np.arange(n), i)
        named = helpers.loc[helpers["device"] == i, "peer"].to_numpy(dtype=np.int64)
        strangers = random.choice(others, many, replace=False)
        errors = [_error(setup, state, units, held, i, i)]
        for gone in (named[:many], strangers):
            left = np.setdiff1d(np.arange(n), gone)
            again, scale = _run(setup, _some(learn, left))
            place = int(np.searchsorted(left, i))
            errors.append(_error(setup, again, scale, held, i, place))
        found.append((rows.ids[i], *errors))
    table = pd.DataFrame(found, columns=["device", "all", "named", "random"])
    small = SMALL * float(table["all"].mean())
    logs = np.log(table[["all", "named", "random"]].to_numpy() + max(small, 1e-300))
    everybody, without, others = logs.T
    rises = (without - everybody, others - everybody, without - others)
    refits = 1 + 2 * len(drawn)
    named, random_ones, beyond = (_rise(rise) for rise in rises)
    return Removal(named, random_ones, beyond, many, refits, table)


def _run(setup: Setup, learn: Devices) -> tuple[State, Units]:
    """The method on these rows."""
    units = setup.units(learn)
    task = setup.task(units.inside(learn), setup.public(learn))
    return setup.method.run(task, stage="removal", keep=None), units


def _error(
    setup: Setup, state: State, units: Units, held: Devices, i: int, place: int
) -> float:
    """The error of device i on its rows held back; `place` is its position in the run."""
    data = held[i]
    owner = np.full(len(data.y), place)
    X = units.features(data.X, owner)
    said = respond_each(setup.learner, state.models, X, owner, setup.classes)
    if setup.classes:
        true = data.y.astype(np.int64)[:, None] == np.arange(setup.classes)
        losses = ((said - true) ** 2).sum(axis=1)
    else:
        losses = (units.outside(said, owner) - data.y) ** 2
    return float(np.average(losses, weights=data.weight))


def _some(rows: Devices, which: IntArray) -> Devices:
    """These devices alone."""
    mine = np.isin(rows.owner, which)
    return Devices(
        rows.X[mine],
        rows.y[mine],
        rows.weight[mine],
        offsets(rows.counts[which]),
        [rows.ids[i] for i in which.tolist()],
        columns=rows.columns,
    )


def _rise(logs: Array) -> Rise:
    """Of a typical target: the mean of its logarithms over targets, with Student's interval."""
    count = len(logs)
    mean = float(logs.mean())
    half = float("inf")
    if count > 1:
        half = float(stdtrit(count - 1, 0.975) * logs.std(ddof=1) / np.sqrt(count))
    return Rise(*np.expm1([mean, mean - half, mean + half]).tolist())
