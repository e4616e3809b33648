"""How long a run waits for devices, and for how many of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from persfl.checks import real
from persfl.errors import NotReady

Say = Callable[[str, Sequence[str]], None]


class Away(NotReady):
    """Too few devices have answered for too long; everything is kept, and the run can go on
    later.
    """


class Go(NamedTuple):
    """One attempt: whether enough have done their part, and who has not."""

    enough: bool
    missing: Sequence[str]


def _nobody(where: str, missing: Sequence[str]) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Patience:
    """The share `quorum` of those asked must answer within `seconds`, in as many attempts as fit.

    `say` hears who is missing after an attempt that was not enough.
    """

    quorum: float = 0.5
    seconds: float = 600.0
    say: Say = _nobody

    def __post_init__(self) -> None:
        real("quorum", self.quorum, least=0, most=1)
        real("patience", self.seconds, least=0)

    def least(self, asked: int) -> int:
        """How many of those asked are enough: at least one.

        >>> Patience(0.5).least(5), Patience(0.0).least(5)
        (3, 1)
        """
        return max(1, math.ceil(self.quorum * asked))

    def until(self, where: str, attempt: Callable[[], Go]) -> float | None:
        """Try until it is enough: None, or the seconds after which there was no more time."""
        begin = time.monotonic()
        while True:
            go = attempt()
            if go.enough:
                return None
            waited = time.monotonic() - begin
            if waited > self.seconds:
                return waited
            if go.missing:
                self.say(where, go.missing)
            time.sleep(min(1.0, self.seconds))
