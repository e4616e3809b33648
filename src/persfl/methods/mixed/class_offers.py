"""What a device's model of classes may be made of.

    pooled     one model for the fleet
    even chances   all classes alike, whatever the row: makes a pool less sure of itself
    level      that model, the levels (intercepts) pulled from the device's own rows
    pull       all coefficients: from hardly personal to hardly pulled
    alike      own rows and those of devices whose rows are alike, fitted together (`class_alike`)
    near       from the mean of the likeliest centres among the other devices (`class_near`); once
               found from own models that are hardly pulled, and once from those of alike devices

Variances are fixed, not learned: with a row or two of each class at a device learned ones collapse
to 0 where a wide prior is right. Which of them are right is left to hidden rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from persfl.devices import Devices
from persfl.methods.mixed.class_alike import alike_models
from persfl.methods.mixed.class_centre import fleet_centre
from persfl.methods.mixed.class_fits import Axes, decided, pulled
from persfl.methods.mixed.class_near import near_centres
from persfl.methods.mixed.class_rows import ClassRows
from persfl.types import Array, IntArray

LEVEL = 1.0  # the variance of personal levels, in log odds
# variances of personal coefficients, by that of the fleet's slopes: from a little to any
PULLS = (1.0, 10.0, 100.0)
MIDDLE = PULLS[1]  # for what is fitted from neighbours
NEAR = (
    0.3  # the same about a centre that is a neighbour's: kinds are narrower than fleets
)


@dataclass(eq=False)
class ClassOffers:
    """Offers for these rows, one after the other; `slopes` and `posteriors` (by the name of their
    offers) are there at the end.
    """

    rows: Devices
    whole: ClassRows
    parts: Sequence[ClassRows]
    level: bool
    centres: IntArray
    slopes: float = 1.0
    posteriors: dict[str, Array] = field(default_factory=dict)

    def each(self) -> Iterator[tuple[str, Array, Array]]:
        """Names, models (copies, n, d, classes), and how much own rows decide (n,)."""
        n = len(self.rows)
        centre, self.slopes = fleet_centre(self.whole, level=self.level)
        pooled = np.repeat(centre[:, None], n, axis=1)
        yield "pooled", pooled, np.zeros(n)
        # all classes alike: its share makes the others, and trees, less sure of themselves
        yield "even chances", np.zeros_like(pooled), np.zeros(n)
        d = pooled.shape[2]
        if self.level:
            alone = np.zeros(d)
            alone[-1] = LEVEL
            yield "level", *self._pulled(self._axes(alone), pooled, 1.0)
        variance = np.full(d, self.slopes)
        axes = self._axes(variance)
        free = pooled
        for factor in PULLS:
            free, own = self._pulled(axes, pooled, factor)
            yield f"pull {factor:g}", free, own
        if n > 2:
            alike = alike_models(
                self.rows,
                self.whole,
                self.parts,
                centre,
                MIDDLE * variance,
                self.centres,
            )
            yield "alike", *alike
            for name, start in (("near", free), ("near alike", alike[0])):
                found = near_centres(self.parts, axes, start, NEAR, self.centres)
                self.posteriors[name] = found.posterior
                yield name, *self._pulled(axes, found.mean, NEAR)
                yield f"{name}, free", *self._pulled(axes, found.mean, MIDDLE)

    def _axes(self, variance: Array) -> list[Axes]:
        return [Axes.of(rows, variance) for rows in self.parts]

    def _pulled(
        self, axes: Sequence[Axes], centre: Array, factor: float
    ) -> tuple[Array, Array]:
        found = np.empty_like(centre)
        own = np.zeros(centre.shape[1])
        for rows, axis in zip(self.parts, axes, strict=True):
            who = rows.who
            found[:, who] = pulled(rows, axis, centre[:, who], factor)
            own[who] = decided(rows, axis, found[0, who], factor)
        return found, own
