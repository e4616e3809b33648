"""Who was asked, who answered, and how it went wrong; a peer that keeps failing is asked less.

>>> roster = Roster()
>>> for r in range(3):
...     roster.failed("ann", r, "late")
>>> [r for r in range(3, 12) if roster.due("ann", r)]
[6, 7, 8, 9, 10, 11]
>>> roster.answered("ann", 6)
>>> roster.due("ann", 7), roster.counts["ann"]["late"]
(True, 3)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from persfl.errors import InputError

LONGEST = 32  # rounds between two questions to a peer that never answers
WAYS = {
    "asked": "questions sent",
    "answered": "usable answers",
    "refused": "polite refusals by the owner's policy",
    "late": "no answer before the deadline",
    "gone": "not connected",
    "failed": "errors at the device",
    "format": "answers in a wrong form: shape, size, kind, numbers that are not finite or absurd",
    "stale": "answers to another question: another run, round or device",
    "guarded": (
        "usable answers that did not fit who asked: its loss would have grown many times over, or"
        " the step was far too long"
    ),
    "rested": "times it was not asked because it had failed before",
}


class Roster:
    """Counts per device. A device that failed in k > 1 rounds in a row is next asked 2 ** (k -
    1) rounds later.
    """

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}
        # which limit of its owner a device has reached
        self.limits: dict[str, str] = {}
        self._streak: dict[str, int] = {}
        self._due: dict[str, int] = {}
        self._when: dict[str, int] = {}

    def count(self, name: str, what: str, times: int = 1) -> None:
        self.counts.setdefault(name, Counter())[what] += times

    def answered(self, name: str, r: int) -> None:
        """It answered: its past is forgiven."""
        self._streak.pop(name, None)
        self._due.pop(name, None)

    def failed(self, name: str, r: int, how: str, times: int = 1) -> None:
        """It did not, in this way."""
        self.count(name, how, times)
        if self._when.get(name) == r:  # asked again in the same round: one failure
            return
        self._when[name] = r
        self._streak[name] = self._streak.get(name, 0) + 1
        if self._streak[name] > 1:
            self._due[name] = r + min(2 ** (self._streak[name] - 1), LONGEST)

    def due(self, name: str, r: int) -> bool:
        """Whether to ask it in this round."""
        return r >= self._due.get(name, 0)

    def table(self) -> list[dict[str, Any]]:
        """One row per device, every way it can go."""
        return [
            {"device": name} | {way: self.counts[name][way] for way in WAYS}
            for name in sorted(self.counts)
        ]

    def to_plain(self) -> dict[str, Any]:
        """What JSON takes; `from_plain` takes it back."""
        counts = {k: dict(v) for k, v in self.counts.items()}
        return {
            "counts": counts,
            "streak": self._streak,
            "due": self._due,
            "limits": self.limits,
        }

    @staticmethod
    def from_plain(told: Mapping[str, Any]) -> Roster:
        """The inverse of `to_plain`."""
        made = Roster()
        try:
            made.counts = {
                str(k): Counter({str(w): int(c) for w, c in v.items()})
                for k, v in told["counts"].items()
            }
            made._streak = {str(k): int(v) for k, v in told["streak"].items()}
            made.limits = {str(k): str(v) for k, v in told.get("limits", {}).items()}
            made._due = {str(k): int(v) for k, v in told["due"].items()}
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise InputError("the saved counts of a federation are damaged.") from None
        return made
