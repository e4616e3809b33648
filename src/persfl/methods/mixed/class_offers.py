"""What a device's model of classes may be made of.

    pooled     one model for the fleet
    even chances   all classes alike, whatever the row: makes a pool less sure of itself
    own        own rows alone, slopes drawn to 0 as the fleet's are, and ten times less
    level      that model, with levels (intercepts) of the device's own rows, hardly pulled
    pull       all coefficients, pulled and hardly pulled
    alike      own rows and those of devices whose rows are alike, fitted together (`class_alike`)
    near       from the mean of the likeliest centres among the other devices (`class_near`); once
               found from own models that are hardly pulled, and once from those of alike devices
    near, together     own rows and those of the likeliest centres, fitted together about 0 for
               both of these (`class_together`): a kind may be nothing like the fleet

Variances are fixed, not learned: with a row or two of each class at a device learned ones collapse
to 0 where a wide prior is right. Which of them are right is left to hidden rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from persfl.devices import Devices
from persfl.methods.mixed.class_alike import alike_models
from persfl.methods.mixed.class_centre import fleet_centre
from persfl.methods.mixed.class_fits import Axes, decided, pulled
from persfl.methods.mixed.class_near import NearCentres, near_centres
from persfl.methods.mixed.class_newton import WIDE, prior_variance
from persfl.methods.mixed.class_rows import ClassRows
from persfl.methods.mixed.class_together import likely_company, together
from persfl.types import Array, IntArray

# variances of personal coefficients, by that of the fleet's slopes: personal, and any
PULLS = (10.0, 100.0)
OWN = (1.0, 10.0)  # the same about 0, for devices that are like nobody
MIDDLE = PULLS[0]  # for what is fitted from neighbours
NEAR = (
    0.3  # the same about a centre that is a neighbour's: kinds are narrower than fleets
)


class Offer(NamedTuple):
    """A name, models (copies, n, d, classes), and how much own rows decide of each (n,)."""

    name: str
    models: Array
    own: Array


class Pulls(NamedTuple):
    """What devices make of centres with their own rows: `parts` are devices of like counts,
    `level` says whether models have one, `slopes` is the variance of the fleet's slopes.
    """

    parts: Sequence[ClassRows]
    level: bool
    slopes: float

    @property
    def variance(self) -> Array:
        """(d,) of coefficients."""
        return np.full(self.parts[0].Z.shape[-1], self.slopes)

    def axes(self, variance: Array) -> list[Axes]:
        """Rows in the axes of a prior."""
        return [Axes.of(rows, variance) for rows in self.parts]

    def from_fleet(self, pooled: Array) -> Iterator[Offer]:
        """From the fleet's model (copies, n, d, classes)."""
        n, d = pooled.shape[1:3]
        yield Offer("pooled", pooled, np.zeros(n))
        # all classes alike: its share makes the others, and trees, less sure of themselves
        yield Offer("even chances", np.zeros_like(pooled), np.zeros(n))
        yield from self.own_rows(np.zeros_like(pooled))
        if self.level:
            alone = np.zeros(d)
            alone[-1] = WIDE
            yield self.toward("level", self.axes(alone), pooled, 1.0)
        axes = self.axes(self.variance)
        for factor in PULLS:
            yield self.toward(f"pull {factor:g}", axes, pooled, factor)

    def own_rows(self, nothing: Array) -> Iterator[Offer]:
        """From models of zeros (copies, n, d, classes): nobody else has a say but in `slopes`."""
        for factor in OWN:
            prior = prior_variance(nothing.shape[2], factor * self.slopes, self.level)
            found = self.toward(f"own {factor:g}", self.axes(prior), nothing, 1.0)
            yield found._replace(own=np.ones(nothing.shape[1]))

    def from_centres(self, name: str, mean: Array) -> Iterator[Offer]:
        """From the mean of each device's likeliest centres (copies, n, d, classes)."""
        axes = self.axes(self.variance)
        yield self.toward(name, axes, mean, NEAR)
        yield self.toward(f"{name}, free", axes, mean, MIDDLE)

    def toward(
        self, name: str, axes: Sequence[Axes], centre: Array, factor: float
    ) -> Offer:
        """Models of own rows that are pulled to centres."""
        found = np.empty_like(centre)
        own = np.zeros(centre.shape[1])
        for rows, axis in zip(self.parts, axes, strict=True):
            who = rows.who
            found[:, who] = pulled(rows, axis, centre[:, who], factor)
            own[who] = decided(rows, axis, found[0, who], factor)
        return Offer(name, found, own)


@dataclass(eq=False)
class ClassOffers:
    """Offers for these rows, one after the other; `slopes` and `posteriors` (by the name of their
    offers) are there at the end. Without `alike` nothing is fitted to the rows of several devices
    but the fleet's model.
    """

    rows: Devices
    whole: ClassRows
    parts: Sequence[ClassRows]
    level: bool
    centres: IntArray
    alike: bool = True
    slopes: float = 1.0
    posteriors: dict[str, Array] = field(default_factory=dict)

    def each(self) -> Iterator[Offer]:
        """One after the other."""
        n = len(self.rows)
        centre, self.slopes = fleet_centre(self.whole, level=self.level)
        pooled = np.repeat(centre[:, None], n, axis=1)
        pulls = Pulls(self.parts, self.level, self.slopes)
        free = pooled
        for offer in pulls.from_fleet(pooled):
            free = offer.models  # the last is hardly pulled
            yield offer
        if n <= 2:
            return
        starts = [("near", free)]
        if self.alike:
            models, own = alike_models(
                self.rows,
                self.whole,
                self.parts,
                centre,
                MIDDLE * pulls.variance,
                self.centres,
            )
            yield Offer("alike", models, own)
            starts.append(("near alike", models))
        axes = pulls.axes(pulls.variance)
        for name, start in starts:
            found = near_centres(self.parts, axes, start, NEAR, self.centres)
            self.posteriors[name] = found.posterior
            yield from pulls.from_centres(name, found.mean)
            if self.alike:
                yield self._together(f"{name}, together", found, centre)

    def _together(self, name: str, near: NearCentres, fleet: Array) -> Offer:
        """Own rows and those of likely centres, from the mean of these on; where no own row
        says who they are, the `fleet`'s models (copies, d, classes).
        """
        n = len(self.rows)
        variance = prior_variance(fleet.shape[1], MIDDLE * self.slopes, self.level)
        found = np.empty_like(near.mean)
        own = np.zeros(n)
        for copy, model in enumerate(fleet):
            company = likely_company(near.likely.who[copy], near.likely.share[copy])
            if copy == 0:
                own = company.own(self.rows.counts)
            made = together(
                self.rows,
                self.whole,
                copy,
                company,
                np.zeros_like(model),
                variance,
                near.mean[copy],
            )
            shown = self.whole.weight[copy, 0]
            none = np.bincount(self.rows.owner, weights=shown, minlength=n) == 0
            found[copy] = np.where(none[:, None, None], model, made)
        return Offer(name, found, own)
