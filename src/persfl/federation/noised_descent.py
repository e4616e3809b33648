"""One model for all by a few noised steps, over a federation whose devices pay for each answer.

It is what a blend comes to where no device tells sums: all that a budget of some twenty answers can
find out is one model. Each protected device then weighs it against its own rows, at home.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

import numpy as np

from persfl.checks import those
from persfl.errors import InputError
from persfl.methods.blend.fixed_point import LONG, counted
from persfl.methods.private.common_descent import MeanPath
from persfl.methods.shared_method import SteppedMethod
from persfl.methods.shared_models import (
    hold,
    quiet_round,
    slopes,
    start_of,
    step_length,
)
from persfl.privacy import PLANNED
from persfl.seeds import stream
from persfl.trust import Trust
from persfl.types import Array, Round

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet


@runtime_checkable
class TellsRows(Protocol):
    """A fleet whose devices tell with a step how many rows it is of."""

    def rows_told(self, i: int) -> tuple[float, float]:
        """How many rows a device has, with noise if it is protected, and by what the sum of their
        gradients was divided.
        """


class SlopeTotals:
    """The gradient of everybody's rows: what devices tell, weighed by rows. A protected device
    tells a noised number of rows with each step, and their mean counts.
    """

    def __init__(self, n: int) -> None:
        self._rows = np.zeros(n)
        self._times = np.zeros(n)

    def at(self, fleet: InProcessFleet, model: Array) -> Array:
        """(size,) at a model, as far as noise lets see."""
        assert isinstance(fleet, TellsRows)
        everyone = np.arange(fleet.n)
        models = np.repeat(model[None], fleet.n, axis=0)
        slope = slopes(fleet, models, everyone, stream(0, "nothing is drawn"))
        moved = slope.any(axis=1)
        told = [fleet.rows_told(i) for i in everyone.tolist()]
        divisor = counted(np.array([max(rows, 1.0) for _, rows in told]))
        most = LONG * float(np.median(divisor))
        now = np.clip([rows for rows, _ in told], -most, most)
        self._rows += np.where(moved, now, 0.0)
        self._times += moved
        mean = self._rows / np.maximum(self._times, 1)
        # fewer than none would make up for others' rows, and steps as long as one device likes
        rows = np.maximum(mean, 0.0)[moved].sum()
        least = max(float(moved.sum()), 1.0)
        return np.asarray(divisor @ slope / max(float(rows), least))


@dataclass(frozen=True)
class NoisedDescent(SteppedMethod):
    """As many steps of everybody from a common model as devices have answers left."""

    name: ClassVar[str] = "noised descent"
    about: ClassVar[str] = "One model for everybody, by noised steps"

    def rounds_over(
        self, fleet: InProcessFleet, rounds: int, seed: int
    ) -> Iterator[Round]:
        """Everybody is asked each round; the mean of the later models is the result."""
        if not isinstance(fleet, TellsRows):
            raise InputError("noised steps are for the devices of a federation.")
        trust = Trust.blank(fleet)
        step = step_length(fleet, self.name)
        start = np.asarray(start_of(fleet, seed))
        path = MeanPath(start.astype(np.float64), step, rounds)
        totals = SlopeTotals(fleet.n)
        for r in range(rounds):
            path.move(totals.at(fleet, path.model.astype(start.dtype)))
            model = path.result if r == rounds - 1 else path.model
            model = model.astype(start.dtype)
            hold(fleet, np.repeat(model[None], len(fleet.targets), axis=0), r)
            yield quiet_round(fleet, r, trust)


def steps_that_fit(paying: dict[str, int]) -> int:
    """How many steps devices with so many answers left can be asked for: as many as the middle one
    has, of two the one with fewer. One alone makes nobody's run shorter; who has fewer answers the
    first of them.

    >>> steps_that_fit({"ann": 20, "bob": 7}), steps_that_fit({"ann": 400})
    (7, 20)
    >>> steps_that_fit({"ann": 20, "bob": 20, "eve": 1})
    20
    """
    left = sorted(paying.values())
    return min(PLANNED, left[(len(left) - 1) // 2])


def descent_words(paying: dict[str, int]) -> str:
    """What a blend came to where devices pay for each answer; who has few left is named.

    >>> "(device 'bob' has no more left)" in descent_words({"ann": 20, "bob": 7})
    True
    """
    steps = steps_that_fit(paying)
    few = [name for name in sorted(paying) if paying[name] <= min(steps, PLANNED - 1)]
    left = f" ({those(few, 'has', 'have')} no more left)" if few else ""
    return (
        f"One model for all by {steps} noised steps of every device, which is what privacy budgets"
        f" allow{left}; each protected device has weighed it against its own rows at home, and"
        " keeps the outcome there"
    )
