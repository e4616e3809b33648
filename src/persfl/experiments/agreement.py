"""Do our curves agree with those of the authors' code? Plain numbers and a plain verdict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from persfl.experiments.runner import Result
from persfl.experiments.spec import references

NOTHING = 1e-20  # below this an error is rounding


@dataclass(frozen=True)
class Verdict:
    """About one series: whether it agrees, in how many rounds, and where it is furthest away.

    `complete` is False for a run with fewer rounds than the reference or fewer than 12 runs: it may agree so far.
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
        word = ("agrees" if self.agrees else "differs") + ("" if self.complete else " so far")
        return f"{word} ({self.compared} rounds compared, furthest {where})" if self.agrees else f"{word}: {where}"


def verdicts(result: Result) -> list[Verdict]:
    """One verdict per series that has a reference.

    A round counts where the reference median is above 1e-20; ours must lie within a factor 10 of it (for trees, whose errors
    all lie between 1 and 3, a factor 1.5) or inside its 10-90 % band. At the last listed round both must be below 1e-20, or
    within a factor 3 of each other or inside the band, unless the reference is still falling there.
    """
    found = []
    for series in result.spec.series:
        reference = references().get(series.reference or "")
        if reference is None:
            continue
        median = np.median(result.curves[series.name], axis=0)
        listed = [
            (r, *theirs)
            for r, *theirs in zip(*(reference[key] for key in ("iteration", "median", "q10", "q90")), strict=True)
            if r < len(median)
        ]
        if not listed:
            continue
        width = 10.0 if series.settings.vector else 1.5
        compared, worst, wrong = 0, (1, 1.0), False
        for r, theirs, low, high in listed:
            if theirs <= NOTHING:
                continue
            compared += 1
            factor = median[r] / theirs
            inside = 1 / width <= factor <= width or low <= median[r] <= high
            if abs(np.log(factor)) > abs(np.log(worst[1])) and (not inside or not wrong):
                worst = (r, factor)
            wrong |= not inside
        r, theirs, low, high = listed[-1]
        if theirs <= NOTHING:
            floor = bool(median[r] <= NOTHING)
            floors = "both end below 1e-20" if floor else f"ours ends at {median[r]:.1e}, theirs below 1e-20"
        else:
            # A curve that is still falling, or that we cut short, has no floor yet: the rounds above already judged it.
            settled = r == reference["iteration"][-1] and reference["median"][-1] > reference["median"][-3] / 10
            floor = not settled or 1 / 3 <= median[r] / theirs <= 3 or low <= median[r] <= high
            floors = f"in round {r} ours is {median[r]:.2g}, theirs {theirs:.2g}"
        complete = r == reference["iteration"][-1] and result.runs >= 12
        found.append(Verdict(series.name, not wrong and floor, compared, worst[0], worst[1], floors, complete))
    return found
