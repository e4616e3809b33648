"""From cells to numbers: where every method stands on a data set, and how much one of them loses or gains over all sets.

    error     mean over devices, then over seeds; of a method with several variants (units, settings) that of the best, in hindsight
    removed   per device d = 2 (rival - reference) / (rival + reference), its mean over devices, then over seeds with Student's 95 %
              interval over seeds; shown as the typical share of the rival's error that the reference removes, 2d / (2 + d)
    regret    log(error / least error of all methods but the reference): below 0, the reference is better than the best rival

With a single seed the interval of `removed` is over its devices, and regret has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from persfl.checks import one_of
from persfl.types import Array
from persfl.worth import relative, verdict

REFERENCE = "blend"


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


def standings(cells: Sequence[Mapping[str, Any]], reference: str = REFERENCE) -> dict[str, Standing]:
    """Every method's standing, from the cells of one data set.

    >>> cell = {"errors": {"local": {"shared": [1.0, 3.0], "centred": [3.0, 3.0]}, "blend": {"shared": [1.0, 1.0]}}}
    >>> cell["seconds"] = {"local": {"shared": 0.1, "centred": 0.1}, "blend": {"shared": 0.5}}
    >>> found = standings([cell])
    >>> found["local"].variant, found["local"].better, round(found["blend"].regret, 3)
    ('shared', 0.5, -0.693)
    """
    best = variants(cells)
    one_of("reference", reference, list(best))
    errors = {name: [np.array(cell["errors"][name][variant]) for cell in cells] for name, variant in best.items()}
    seeds = {name: np.array([each.mean() for each in parts]) for name, parts in errors.items()}
    rival = best_rival(seeds, reference)
    found = {}
    for name, variant in best.items():
        d = [relative(theirs, ours) for theirs, ours in zip(errors[name], errors[reference], strict=True)]
        against = verdict(np.array([part.mean() for part in d]) if len(cells) > 1 else d[0])
        removed = (against.gain, against.low, against.high) if name != reference else (np.nan, np.nan, np.nan)
        better, worse = (float(np.mean(sign * np.concatenate(d) > 0)) for sign in (1, -1))
        seconds = float(np.mean([cell["seconds"][name][variant] for cell in cells]))
        moved = ratio(seeds[name], seeds[rival])
        found[name] = Standing(name, variant, *interval(seeds[name]), *removed, better, worse, *moved, seconds)
    return found


def least(found: Mapping[str, Standing], but: str = "") -> str:
    """Who has the least error, of all but one."""
    return min((name for name in found if name != but or len(found) == 1), key=lambda name: found[name].error)


def variants(cells: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The variant of each method that has the least error over these cells."""
    known = cells[0]["errors"]
    return {
        name: min(known[name], key=lambda variant: float(np.mean([np.mean(cell["errors"][name][variant]) for cell in cells])))
        for name in known
    }


def best_rival(seeds: Mapping[str, Array], reference: str) -> str:
    """Who has the least error but the reference (which stands alone where nobody else was tried)."""
    others = [name for name in seeds if name != reference] or [reference]
    return min(others, key=lambda name: float(seeds[name].mean()))


def interval(values: Array) -> tuple[float, float, float]:
    """The mean, and Student's 95 % interval around it; NaN for the bounds of a single value.

    >>> interval(np.array([1.0, 2.0, 3.0]))[0], round(interval(np.array([1.0, 2.0, 3.0]))[1], 3)
    (2.0, -0.484)
    """
    mean, n = float(values.mean()), len(values)
    half = float(stdtrit(n - 1, 0.975) * values.std(ddof=1) / np.sqrt(n)) if n > 1 else np.nan
    return mean, mean - half, mean + half


def ratio(ours: Array, theirs: Array) -> tuple[float, float, float]:
    """The log of the ratio of two means over seeds, with its interval (each seed's part in it to the first order)."""
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
    cells: Mapping[str, Sequence[Mapping[str, Any]]], name: str = REFERENCE, reference: str = REFERENCE
) -> tuple[float, float, float]:
    """A method's regret, mean over data sets, with its interval over seeds (all sets must have the same)."""
    middles, moved = [], []
    for some in cells.values():
        seeds = {
            method: np.array([np.mean(cell["errors"][method][variant]) for cell in some])
            for method, variant in variants(some).items()
        }
        rival = best_rival(seeds, reference)
        middles.append(ratio(seeds[name], seeds[rival])[0])
        moved.append(parts(seeds[name], seeds[rival]))
    middle = float(np.mean(middles))
    _, low, high = interval(np.mean(moved, axis=0)) if len({len(each) for each in moved}) == 1 else (0.0, np.nan, np.nan)
    return middle, middle + low, middle + high


def by_set(cells: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Cells by data set, in the order in which the sets first come."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for cell in cells:
        found.setdefault(cell["set"], []).append(cell)
    return found
