"""What models depend on, as found by refits: values, and the sentences that may be said of them.

`persfl.fitting.removal`, `quick_removal` and `contribution` find them; run folders keep them.
"""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from persfl.checks import many as counted
from persfl.evaluation.intervals import percent

LITTLE = 0.1  # a rise by less is no reason to name anybody


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


class Contributions(NamedTuple):
    """`table`: device, `rise` of the others' errors without it, `low` and `high`, whether it is
    `missed`, most helpful first; `refits` is how many runs it took, `devices` how many there are.
    """

    table: pd.DataFrame
    refits: int
    devices: int

    @property
    def sentence(self) -> str:
        """What may be said."""
        clear = self.table[self.table["missed"]]
        asked = f"{len(self.table)} of {self.devices} devices were left out in turn"
        if not len(clear):
            return (
                f"Nobody is clearly missed by the others: {asked}; {self.refits} fits. What helps"
                " is the fleet as a whole."
            )
        best = clear.iloc[0]
        rise = Rise(best["rise"], best["low"], best["high"])
        return (
            f"{counted(len(clear), 'device')} of those left out"
            f" {'is' if len(clear) == 1 else 'are'} missed by the others, {best['device']} most:"
            f" without it their errors rise by {rise}. {asked[0].upper()}{asked[1:]};"
            f" {self.refits} fits."
        )
