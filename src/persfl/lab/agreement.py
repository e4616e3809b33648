"""Do our curves agree with those of the authors' code? Plain numbers and a plain verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from persfl.lab.spec_files import Reference, references
from persfl.types import Array

if TYPE_CHECKING:
    from persfl.lab.figure_runs import Result

NOTHING = 1e-20  # below this an error is rounding
ENOUGH = 12  # runs that make a verdict complete, as many as the reference has


@dataclass(frozen=True)
class SeriesVerdict:
    """About one series: whether it agrees, in how many rounds, and where it is furthest away.

    `complete` is False for a run with fewer rounds than the reference or fewer than 12 runs: it may
    agree so far.
    """

    series: str
    agrees: bool
    compared: int
    worst_round: int
    factor: float  # ours divided by theirs at the worst round
    floors: str
    complete: bool

    def __str__(self) -> str:
        where = f"{self.factor:.2g} times the reference in round {self.worst_round}; {self.floors}"
        so_far = "" if self.complete else " so far"
        if self.agrees:
            return f"agrees{so_far} ({self.compared} rounds compared, furthest {where})"
        return f"differs{so_far}: {where}"


class _Point(NamedTuple):
    """A listed round: our median, and theirs with its 10-90 % band."""

    r: int
    ours: float
    theirs: float
    low: float
    high: float

    @property
    def factor(self) -> float:
        return self.ours / self.theirs

    def near(self, width: float) -> bool:
        """Whether ours is within a factor of theirs, or inside their band."""
        return 1 / width <= self.factor <= width or self.low <= self.ours <= self.high


def verdicts(result: Result) -> list[SeriesVerdict]:
    """One verdict per series that has a reference.

    A round counts where the reference median is above 1e-20; ours must lie within a factor 10 of
    it (for trees, whose errors all lie between 1 and 3, a factor 1.5) or inside its 10-90 % band.
    At the last listed round both must be below 1e-20, or within a factor 3 of each other or inside
    the band, unless the reference is still falling there.
    """
    found = []
    for series in result.spec.series:
        reference = references().get(series.reference or "")
        if reference is None:
            continue
        points = list(_points(reference, np.median(result.curves[series.name], axis=0)))
        if points:
            width = 10.0 if series.settings.vector else 1.5
            found.append(_verdict(series.name, points, reference, width, result.runs))
    return found


def _points(reference: Reference, median: Array) -> Iterator[_Point]:
    """The rounds of the reference that our curve reaches."""
    columns = [reference[key] for key in ("iteration", "median", "q10", "q90")]
    for r, theirs, low, high in zip(*columns, strict=True):
        if r < len(median):
            yield _Point(r, median[r], theirs, low, high)


def _verdict(
    series: str,
    points: list[_Point],
    reference: Reference,
    width: float,
    runs: int,
) -> SeriesVerdict:
    compared = [point for point in points if point.theirs > NOTHING]
    worst_round = 1
    factor = 1.0
    wrong = False
    for point in compared:
        inside = point.near(width)
        further = abs(np.log(point.factor)) > abs(np.log(factor))
        if further and (not inside or not wrong):
            worst_round = point.r
            factor = point.factor
        wrong |= not inside
    last = points[-1]
    at_end = last.r == reference["iteration"][-1]
    floor, floors = _floor(last, reference, at_end)
    agrees = not wrong and floor
    complete = at_end and runs >= ENOUGH
    return SeriesVerdict(
        series, agrees, len(compared), worst_round, factor, floors, complete
    )


def _floor(last: _Point, reference: Reference, at_end: bool) -> tuple[bool, str]:
    """Whether both curves end at the same level, and in words where they end."""
    if last.theirs <= NOTHING:
        if last.ours <= NOTHING:
            return True, "both end below 1e-20"
        return False, f"ours ends at {last.ours:.1e}, theirs below 1e-20"
    # A curve that is still falling, or that we cut short, has no floor yet: the rounds above
    # already judged it.
    medians = reference["median"]
    has_floor = at_end and medians[-1] > medians[-3] / 10
    said = f"in round {last.r} ours is {last.ours:.2g}, theirs {last.theirs:.2g}"
    return not has_floor or last.near(3.0), said
