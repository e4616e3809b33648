"""What models depend on, as found by refits: values, and the sentences that may be said of them.

`persfl.fitting.removal`, `quick_removal` and `contribution` find them; run folders keep them.
"""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from persfl.checks import many as counted
from persfl.checks import percent

LITTLE = 0.1  # a rise by less is no reason to name anybody
SHOWN = 0.005  # a smaller one is shown as 0 %
FLEET = "where others help, it is the fleet as a whole"


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

    @property
    def words(self) -> str:
        """What errors do.

        >>> Rise(0.17, 0.12, 0.22).words, Rise(-0.07, -0.12, -0.02).words
        ('rise by 17 % (12 % to 22 %)', 'fall by 7 % (2 % to 12 %)')
        >>> Rise(0.001, -0.02, 0.03).words
        'change by 0 % (−2 % to 3 %)'
        """
        if percent(self.rise) == percent(0.0):
            return f"change by {self}"
        if self.rise > 0:
            return f"rise by {self}"
        return f"fall by {Rise(-self.rise, -self.high, -self.low)}"


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
        """Whether those that are named matter clearly more than others, by what can be shown."""
        return self.difference.low >= SHOWN

    @property
    def sentence(self) -> str:
        """What may be said."""
        devices = counted(self.many, "device")
        of = f"measured on unseen rows of {counted(self.targets, 'device')}"
        if self.matters:
            return (
                f"Without the {devices} that seem most like each, errors {self.named.words};"
                f" without as many random ones they {self.random.words}; {of}."
            )
        found = (
            f"Without them errors {self.named.words}, without random ones they"
            f" {self.random.words}; {of}."
        )
        if self.difference.high <= LITTLE:
            return (
                f"The {devices} that seem most like each matter little more than any other"
                f" {self.many}, if at all: {FLEET}. {found}"
            )
        return (
            f"Whether the {devices} that seem most like each matter more than any other {self.many}"
            f" cannot be told. {found}"
        )

    @property
    def of_one(self) -> str:
        """What may be said to one device, which has too few rows to be measured alone."""
        changes = (
            f"over all devices errors {self.named.words} without the {self.many} that seem most"
            f" like each, and {self.random.words} without random ones"
        )
        if self.matters:
            return f"Yes: {changes}."
        if self.difference.high <= LITTLE:
            return f"Little more than on any others, if at all: {changes}."
        return f"It cannot be told: {changes}."


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
                f"Nobody is clearly missed by the others: {asked}; {self.refits} fits."
                f" {FLEET[0].upper()}{FLEET[1:]}."
            )
        best = clear.iloc[0]
        rise = Rise(best["rise"], best["low"], best["high"])
        return (
            f"{counted(len(clear), 'device')} of those left out"
            f" {'is' if len(clear) == 1 else 'are'} missed by the others, {best['device']} most:"
            f" without it their errors {rise.words}. {asked[0].upper()}{asked[1:]};"
            f" {self.refits} fits."
        )
