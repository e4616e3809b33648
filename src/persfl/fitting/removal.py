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
from numpy.typing import NDArray
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
    from persfl.trust import Trust
    from persfl.types import Array, IntArray
    from persfl.units import Units

SMALL = 0.05  # of the mean error: so much is added to all, that none near zero decides
LITTLE = 0.1  # a rise by less is no reason to name anybody
HELD = 0.25  # where the fit itself held nothing back


class Rise(NamedTuple):
    """What a typical target's error rises by, as a share of it, and its 95 % interval."""

    rise: float
    low: float
    high: float

    def __str__(self) -> str:
        if self.high > 1:  # more than double
            ends = f"{1 + self.low:.1f} to {1 + self.high:.1f}"
            return f"a factor of {1 + self.rise:.1f} ({ends})"
        return f"{percent(self.rise)} ({percent(self.low)} to {percent(self.high)})"


class Removal(NamedTuple):
    """What was found: `named` and `random` rises, and their `difference`; `many` devices were taken
    out at a time; `refits` is how many runs it took, `targets` on how many devices' unseen rows it
    was measured. `table` has a target's errors: with everybody, without the named, without others.
    That of a fit has the refit in which most of its named devices were `gone`; it is not kept in a
    run folder.
    """

    named: Rise
    random: Rise
    difference: Rise
    many: int
    refits: int
    targets: int
    table: pd.DataFrame | None = None

    @property
    def matters(self) -> bool:
        """Whether those that are named matter clearly more than others."""
        return self.difference.low > 0

    @property
    def sentence(self) -> str:
        """What may be said."""
        devices = counted(self.many, "device")
        of = f"measured on unseen rows of {counted(self.targets, 'device')}"
        if self.matters:
            return (
                f"Without the {devices} named for each, errors rise by {self.named};"
                f" without as many random ones by {self.random}; {of}."
            )
        found = (
            f"Without those named errors rise by {self.named}, without random ones by"
            f" {self.random}; {of}."
        )
        if self.difference.high <= LITTLE:
            return (
                f"No {devices} matter more than any other {self.many}: what helps is the fleet as a"
                f" whole. {found}"
            )
        return (
            f"Whether the {devices} named for each matter more than any other {self.many} cannot be"
            f" told. {found}"
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
    state, units = rerun(setup, learn)
    helpers = _ranked(state.trust)
    found = []
    for i in drawn.tolist():
        others = np.delete(np.arange(n), i)
        named = helpers.loc[helpers["device"] == i, "peer"].to_numpy(dtype=np.int64)
        strangers = random.choice(others, many, replace=False)
        errors = [float(errors_of(setup, state, units, held, np.arange(n))[i])]
        for gone in (named[:many], strangers):
            left = np.setdiff1d(np.arange(n), gone)
            again, scale = rerun(setup, without_devices(learn, left))
            errors.append(float(errors_of(setup, again, scale, held, left)[i]))
        found.append((rows.ids[i], *errors))
    table = pd.DataFrame(found, columns=["device", "all", "named", "random"])
    small = SMALL * float(table["all"].mean())
    logs = np.log(table[["all", "named", "random"]].to_numpy() + max(small, 1e-300))
    everybody, without, others = logs.T
    rises = (without - everybody, others - everybody, without - others)
    refits = 1 + 2 * len(drawn)
    named, random_ones, beyond = (mean_rise(rise) for rise in rises)
    count = len(table)
    return Removal(named, random_ones, beyond, many, refits, count, table)


def rerun(setup: Setup, learn: Devices) -> tuple[State, Units]:
    """The method on these rows."""
    units = setup.units(learn)
    task = setup.task(units.inside(learn), setup.public(learn))
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
    table = _ranked(trust)
    first = table.groupby("device", sort=False).head(many)
    found = np.zeros((trust.n, trust.n), dtype=bool)
    found[first["device"].to_numpy(int), first["peer"].to_numpy(int)] = True
    return found


def _ranked(trust: Trust) -> pd.DataFrame:
    """Who helps whom by positions, most alike first."""
    table = helper_table(trust, list(range(trust.n)))
    return table.sort_values(["alike", "share"], ascending=False, kind="stable")


def without_devices(rows: Devices, which: IntArray) -> Devices:
    """A fleet without some devices: `which` are left."""
    mine = np.isin(rows.owner, which)
    return Devices(
        rows.X[mine],
        rows.y[mine],
        rows.weight[mine],
        offsets(rows.counts[which]),
        [rows.ids[i] for i in which.tolist()],
        columns=rows.columns,
    )


def mean_rise(logs: Array) -> Rise:
    """Of a typical target: the mean of its logarithms over targets, with Student's interval."""
    count = len(logs)
    mean = float(logs.mean())
    half = float("inf")
    if count > 1:
        half = float(stdtrit(count - 1, 0.975) * logs.std(ddof=1) / np.sqrt(count))
    return Rise(*np.expm1([mean, mean - half, mean + half]).tolist())
