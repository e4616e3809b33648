"""From cells to numbers: where every method stands on a data set, and over all sets.

    error     mean over devices, then over seeds, with the settings that were chosen on rows to
              learn from
    removed   per device d = 2 (rival - reference) / (rival + reference), its mean over devices,
              then over seeds with Student's 95 % interval over seeds; shown as the typical share
              of the rival's error that the reference removes, 2d / (2 + d)
    regret    log(error / least error of all methods but the reference): below 0, the reference is
              better than the best rival

With a single seed the interval of `removed` is over its devices, and regret has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from persfl.checks import one_of
from persfl.evaluation.intervals import relative, verdict
from persfl.types import Array

REFERENCE = "blend"
CHOSEN = "chosen"  # settings

CellRecord = Mapping[str, Any]  # what `persfl.lab.comparison_cells` measured
CellsBySet = Mapping[str, Sequence[CellRecord]]
Interval = tuple[float, float, float]  # middle, low, high
NOT_KNOWN: Interval = (np.nan, np.nan, np.nan)


class Standing(NamedTuple):
    """Where one method stands; every number with its 95 % interval where it has one."""

    method: str
    variant: str
    error: float
    low: float
    high: float
    removed: float
    removed_low: float
    removed_high: float
    better: float  # share of devices that the reference makes better off, and worse
    worse: float
    regret: float
    regret_low: float
    regret_high: float
    seconds: float

    @property
    def regret_interval(self) -> Interval:
        """The regret with its interval."""
        return self.regret, self.regret_low, self.regret_high


def standings(
    cells: Sequence[CellRecord], reference: str = REFERENCE
) -> dict[str, Standing]:
    """Every method's standing, from the cells of one data set.

    >>> local = {"shared": [1.0, 3.0], "centred": [3.0, 3.0]}
    >>> cell = {"errors": {"own": local, "blend": {"shared": [1.0, 1.0]}}}
    >>> cell["seconds"] = {
    ...     "own": {"shared": 0.1, "centred": 0.1},
    ...     "blend": {"shared": 0.5},
    ... }
    >>> found = standings([cell])
    >>> found["own"].variant, found["own"].better, round(found["blend"].regret, 3)
    ('shared', 0.5, -0.693)
    """
    best = variants(cells)
    one_of("reference", reference, list(best))
    errors = {
        name: [_errors(cell, name, best[name]) for cell in cells] for name in best
    }
    seeds = {name: _means(each) for name, each in errors.items()}
    rival = best_rival(seeds, reference)
    found = {}
    for name, variant in best.items():
        both = zip(errors[name], errors[reference], strict=True)
        d = [relative(theirs, ours) for theirs, ours in both]
        against = verdict(_means(d) if len(cells) > 1 else d[0])
        removed = (
            NOT_KNOWN
            if name == reference
            else (against.gain, against.low, against.high)
        )
        every = np.concatenate(d)
        better = float(np.mean(every > 0))
        worse = float(np.mean(every < 0))
        seconds = float(np.mean([cell["seconds"][name][variant] for cell in cells]))
        regret = ratio(seeds[name], seeds[rival])
        middle = interval(seeds[name])
        found[name] = Standing(
            name, variant, *middle, *removed, better, worse, *regret, seconds
        )
    return found


def _errors(cell: CellRecord, name: str, variant: str) -> Array:
    """(devices,) errors of a method's variant."""
    return np.array(cell["errors"][name][variant])


def _means(parts: Sequence[Array]) -> Array:
    """(seeds,) the mean over devices of each seed."""
    return np.array([part.mean() for part in parts])


def least(found: Mapping[str, Standing], but: str = "") -> str:
    """Who has the least error, of all but one."""
    names = [name for name in found if name != but or len(found) == 1]
    return min(names, key=lambda name: found[name].error)


def with_equal_questions(cells: Sequence[CellRecord]) -> list[CellRecord]:
    """The same cells with everybody's errors after equally many questions."""
    return [
        {
            **cell,
            "errors": {
                name: {CHOSEN: one["equal"]} for name, one in cell["picked"].items()
            },
        }
        for cell in cells
    ]


def variants(cells: Sequence[CellRecord]) -> dict[str, str]:
    """The variant of each method that has the least error over these cells, of those kept."""
    first: Mapping[str, Mapping[str, Any]] = cells[0]["errors"]
    known = {
        name: each
        for name, each in first.items()
        if all(name in cell["errors"] for cell in cells)
    }

    def best(name: str) -> str:
        def error(variant: str) -> float:
            return float(
                np.mean([np.mean(cell["errors"][name][variant]) for cell in cells])
            )

        return min(known[name], key=error)

    return {name: best(name) for name in known}


def best_rival(seeds: Mapping[str, Array], reference: str) -> str:
    """Who has the least error but the reference, which stands alone where it was tried alone."""
    others = [name for name in seeds if name != reference] or [reference]
    return min(others, key=lambda name: float(seeds[name].mean()))


def interval(values: Array) -> Interval:
    """The mean, and Student's 95 % interval around it; NaN for the bounds of a single value.

    >>> mean, low, _ = interval(np.array([1.0, 2.0, 3.0]))
    >>> mean, round(low, 3)
    (2.0, -0.484)
    """
    mean = float(values.mean())
    n = len(values)
    if n < 2:
        return mean, np.nan, np.nan
    half = float(stdtrit(n - 1, 0.975) * values.std(ddof=1) / np.sqrt(n))
    return mean, mean - half, mean + half


def ratio(ours: Array, theirs: Array) -> Interval:
    """The log of the ratio of two means over seeds, with its interval.

    The interval is that of each seed's part in it, to the first order.
    """
    middle = float(np.log(_mean(ours) / _mean(theirs)))
    _, low, high = interval(parts(ours, theirs))
    return middle, middle + low, middle + high


def parts(ours: Array, theirs: Array) -> Array:
    """(seeds,) how much each seed moves the log ratio of means; their sum is 0."""
    return np.asarray(ours / _mean(ours) - theirs / _mean(theirs))


def _mean(values: Array) -> float:
    """Above 0, so that it has a logarithm where nobody errs."""
    return max(float(values.mean()), 1e-12)


def mean_regret(
    cells: CellsBySet, name: str = REFERENCE, reference: str = REFERENCE
) -> Interval:
    """A method's regret, mean over data sets, with its interval over seeds.

    There is an interval where all sets have equally many seeds.
    """
    middles = []
    moved = []
    for some in cells.values():
        seeds = {}
        for method, variant in variants(some).items():
            seeds[method] = _means([_errors(cell, method, variant) for cell in some])
        rival = best_rival(seeds, reference)
        middles.append(ratio(seeds[name], seeds[rival])[0])
        moved.append(parts(seeds[name], seeds[rival]))
    middle = float(np.mean(middles))
    if len({len(each) for each in moved}) > 1:
        return middle, np.nan, np.nan
    _, low, high = interval(np.mean(moved, axis=0))
    return middle, middle + low, middle + high


def by_set(cells: Sequence[CellRecord]) -> dict[str, list[CellRecord]]:
    """Cells by data set, in the order in which the sets first come."""
    found: dict[str, list[CellRecord]] = {}
    for cell in cells:
        found.setdefault(cell["set"], []).append(cell)
    return found
