"""What a device's model of classes may be made of.

    pooled     one model for the fleet
    level      that model, the levels (intercepts) pulled from the device's own rows
    pull       all coefficients: from hardly personal to hardly pulled
    seen       the same, but classes that a device has never seen stay as in the fleet
    own        from the device's own level instead of the fleet's model
    near       from the mean of the likeliest centres among the other devices

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
from persfl.methods.mixed.class_fits import Axes, pulled
from persfl.methods.mixed.class_near import near_centres
from persfl.methods.mixed.class_rows import ClassRows
from persfl.types import Array, IntArray, Mask

LEVELS = (0.3, 3.0)  # variances of personal levels, in log odds
PULLS = (0.1, 1.0, 10.0, 100.0)  # variances of personal slopes, by that of the fleet's slopes
ALIKE = 10.0
NEAR = (0.3, 10.0)  # the same about the mean centre; the first is that of the search


@dataclass(eq=False)
class ClassOffers:
    """Offers for these rows, one after the other; `slopes` and `posterior` are there at the end."""

    rows: Devices
    whole: ClassRows
    parts: Sequence[ClassRows]
    level: bool
    centres: IntArray
    n: int
    slopes: float = 1.0
    posterior: Array = field(default_factory=lambda: np.zeros((0, 0)))

    def each(self) -> Iterator[tuple[str, Array]]:
        """Names, and models (copies, n, d, classes)."""
        centre, self.slopes = fleet_centre(self.whole, level=self.level)
        pooled = np.repeat(centre[:, None], self.n, axis=1)
        yield "pooled", pooled
        d = pooled.shape[2]
        variance = np.full(d, self.slopes)
        if self.level:
            variance[-1] = max(self.slopes, LEVELS[0])
            alone = np.zeros(d)
            alone[-1] = 1.0
            axes = self._axes(alone)
            for factor in LEVELS:
                yield f"level {factor:g}", self._pulled(axes, pooled, factor)
        axes = self._axes(variance)
        seen = [rows.seen for rows in self.parts]
        some = not all(bool(each.all()) for each in seen)
        free = pooled
        for factor in PULLS:
            free = self._pulled(axes, pooled, factor)
            yield f"pull {factor:g}", free
            if some and 1.0 <= factor < PULLS[-1]:
                yield f"seen {factor:g}", self._pulled(axes, pooled, factor, seen)
        if self.n > 2:
            alike = alike_models(
                self.rows, self.whole, self.parts, centre, variance, ALIKE, self.centres
            )
            yield "alike", alike
            for name, start in (("near", free), ("likest", alike)):
                found = near_centres(self.parts, axes, start, NEAR[0], self.centres)
                self.posterior = found.posterior
                for factor in NEAR:
                    yield f"{name} {factor:g}", self._pulled(axes, found.mean, factor)

    def _axes(self, variance: Array) -> list[Axes]:
        return [Axes.of(rows, variance) for rows in self.parts]

    def _pulled(
        self,
        axes: Sequence[Axes],
        centre: Array,
        factor: float,
        seen: Sequence[Mask] | None = None,
    ) -> Array:
        found = np.empty_like(centre)
        for k, (rows, axis) in enumerate(zip(self.parts, axes, strict=True)):
            known = None if seen is None else seen[k]
            found[:, rows.who] = pulled(
                rows, axis, centre[:, rows.who], factor, seen=known
            )
        return found
