"""What others know of a device's rows after so many answers, without another look at the rows.

Of exact answers: how many of the numbers that they are made of are determined. Of noised ones: how
often the best attack there is can tell whether a row is there.
"""

from __future__ import annotations

from typing import NamedTuple

from persfl.checks import percent
from persfl.privacy.gaussian import true_positives
from persfl.privacy.membership import ALARMS


class Exposure(NamedTuple):
    """`unknowns` sums of products are all that squared loss can tell of a device, `known` of them
    are determined, and `enough` answers determine all; all three are 0 for other losses, where
    nobody counts that. `found`: how often an attack at 1 % false alarms can tell whether a row is
    there, at most.
    """

    unknowns: int
    known: int
    enough: int
    found: float

    @property
    def sentence(self) -> str:
        """The same in words."""
        if self.found < 1.0:
            return (
                "Answers have noise: with 1 % false alarms, whether a row is here can be told"
                f" {percent(self.found, digits=1)} of the time at most."
            )
        if not self.unknowns:
            return (
                "Answers are exact: whoever makes models up instead of passing them on can single"
                " rows out."
            )
        if self.known == self.unknowns:
            return (
                f"Answers are exact, and {self.enough} of them determine all {self.unknowns:,} sums"
                " of products of columns and label: others know them now."
            )
        return (
            f"Answers are exact: others know {self.known:,} of {self.unknowns:,} sums of products"
            f" of columns and label; {self.enough} answers determine all."
        )


def exposure_of(size: int, answers: int, *, squared: bool, mu: float = 0.0) -> Exposure:
    """After so many different answers about models of `size` numbers; `mu` is what noise was paid
    for in all (see `persfl.privacy.gaussian`), 0 where answers are exact.

    >>> exposure_of(3, 2, squared=True)
    Exposure(unknowns=9, known=6, enough=4, found=1.0)
    >>> exposure_of(3, 4, squared=True).known, exposure_of(3, 0, squared=True).found
    (9, 0.01)
    >>> round(exposure_of(3, 9, squared=True, mu=0.7191).found, 3)
    0.054
    """
    if mu > 0:
        return Exposure(0, 0, 0, true_positives(mu, ALARMS))
    found = 1.0 if answers else ALARMS
    if not squared:
        return Exposure(0, 0, 0, found)
    enough = size + 1
    # the first answer tells a vector, each later one how the matrix turns one more direction, of
    # which the symmetric part is known before
    times = min(answers, enough)
    known = size * times - (times - 1) * (times - 2) // 2 if times else 0
    return Exposure(size * (size + 3) // 2, known, enough, found)
