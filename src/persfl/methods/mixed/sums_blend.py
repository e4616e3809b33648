"""What the rule of `linear_rule` finds, as values: judged offers, and models mixed of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from persfl.learners.shared_trees import SharedTrees, WeighedTrees
from persfl.methods.mixed.device_sums import DeviceSums
from persfl.methods.mixed.likeness import Likeness
from persfl.methods.mixed.offers_from_sums import Offered, SumOffers
from persfl.methods.mixed.population import Population
from persfl.methods.mixed.principal_axes import PrincipalAxes
from persfl.types import Array, IntArray


class LinearBlend(NamedTuple):
    """What comes out: `models` (n, columns) in the columns' order, the level first where there is
    one; `trees` are added, each by its share; `names` and `shares` of all offers.

    `made_of` (n, 3): how much own rows, the fleet and neighbours are of each model. `posterior`
    (n, centres): how likely each of `centres` is the centre of a device's model.
    """

    models: Array
    trees: WeighedTrees
    names: tuple[str, ...]
    shares: Array
    made_of: Array
    posterior: Array
    centres: IntArray
    population: Population
    """What is known of a device that was not there."""
    centre_error: Array
    """(n, centres) mean squared errors of centres' models on a device's rows, ..."""
    fleet_error: Array
    """... and (n,) of one model for all."""
    likeness: Likeness


@dataclass(frozen=True, eq=False)
class SumsBlend:
    """Offers from sums, and what they leave of hidden rows; trees, where there are any."""

    offers: SumOffers
    sums: DeviceSums
    whole: Offered
    folds: Sequence[Array]
    """(offers, n, d) models of each fold, of the rows that it does not hide."""
    calm: Array
    """(n,) how much a row of each device counts as evidence: 1, or less for a loud one."""
    names: tuple[str, ...]
    shares: Array
    trees: tuple[tuple[int, SharedTrees], ...] = ()
    """Each with the offer that it is added to; -1 for none."""

    @property
    def simplest(self) -> int:
        """The place of one model for all among the offers."""
        return self.names.index("pooled")

    @property
    def linear(self) -> Array:
        """(offers,) the share of each linear model, also as what trees are added to."""
        many = len(self.whole.models)
        found = self.shares[:many].copy()
        for share, (start, _) in zip(self.shares[many:], self.trees, strict=True):
            if start >= 0:
                found[start] += share
        return found

    @property
    def settled(self) -> Array:
        """(offers,) the same, where nothing goes on from a latest row."""
        return np.asarray(self.linear.reshape(-1, len(self.offers.names)).sum(axis=0))

    @property
    def shared_trees(self) -> WeighedTrees:
        """Trees that have a share, and which."""
        shares = self.shares[len(self.whole.models) :].tolist()
        pairs = zip(shares, self.trees, strict=True)
        return tuple((share, trees) for share, (_, trees) in pairs if share > 0)

    def blended(self, axes: PrincipalAxes) -> LinearBlend:
        """Everything mixed by its share."""
        linear = self.linear
        models = np.einsum("c,cnd->nd", linear, self.whole.models)
        centres = self.offers.centres
        sums = self.sums
        pooled = self.whole.models[self.simplest]
        near = self.whole.models[self.names.index("near")]
        return LinearBlend(
            axes.outside(models),
            self.shared_trees,
            self.names,
            self.shares,
            self.made_of(linear),
            self.whole.posterior,
            centres,
            self.population(axes),
            sums.missed(near[centres]),
            sums.residual(pooled) / sums.weight,
            self.offers.likeness(sums, self.whole),
        )

    def population(self, axes: PrincipalAxes) -> Population:
        """The priors of all offers, by the shares of what is linear."""
        d = self.offers.columns
        names = self.offers.names
        centre = np.zeros((len(names), d))
        Sigma = np.zeros((len(names), d, d))
        for k, learned in enumerate(self.whole.learned):
            here = learned.variances.centre
            centre[k, : len(here)] = here
            F = self.offers.kind(names[k]).random
            Sigma[k][F[:, None], F] = learned.Sigma
        noise = [learned.variances.noise for learned in self.whole.learned]
        near = self.whole.models[names.index("near")]
        return Population(
            names=np.array(names),
            # nobody knows whether a newcomer's rows are in any order
            shares=self.settled,
            centre=centre,
            Sigma=Sigma,
            usual=np.array([each.usual for each in noise]),
            alike=np.array([each.alike for each in noise]),
            centres=near[self.offers.centres],
            axes=np.zeros((0, 0)) if axes.axes is None else axes.axes,
        )

    def made_of(self, linear: Array) -> Array:
        """(n, 3) own rows, fleet, neighbours: what decides each model, offers by their shares."""
        near = [k for k in range(len(linear)) if self.names[k].startswith("near")]
        own = np.einsum("c,cn->n", linear, self.whole.own)
        close = linear[near] @ (1.0 - self.whole.own[near])
        # trees of labels have no linear part, and see the whole fleet
        return np.stack([own, 1.0 - own - close, close], axis=1)
