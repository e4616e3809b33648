"""Who is like whom, in the eyes of the mixed models: a chance for every pair.

Three ideas of the fleet are compared by how likely they make its rows:

    one      one model for all
    spread   every device's model lies about one centre, w_i ~ N(centre, Sigma)
    near     every device's model lies about that of another (`near_centres`)

- Where `one` is about as likely as its spread (two nats less for every variance that spread has
  learned, since the noise of both is that of spread), all devices are alike: what helps is the
  fleet as a whole. In 12 fleets of 60 devices with 10 features, one model was 10 nats less
  likely at most where all were alike, and 44 at least where all differed.
- Where `near` explains the rows better than `spread` by `KINDS` nats a device, there are kinds.
  A device is then like j as far as its centre, by the posterior of near, is where j is: the
  distance of two centres is likelier among neighbours (2 Sigma of near) than in the fleet.
- Otherwise nobody can be told from the others, and a chance is never better than even.

Likelihoods are those of marginal normal distributions, from sums alone:

    log p_i(c, S) = h' c - c' H c / 2 + b' V b / 2 - log det(1 + G S) / 2 + a number of i alone
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit, logsumexp

from persfl.methods.mixed.device_sums import DeviceSums
from persfl.methods.mixed.mixed_model import MixedModel, Variances
from persfl.types import Array, IntArray

# nats a device by which kinds must be likelier than one spread. In one or two fleets of each sort
# (60 devices, 10 features) it was 1.4 at most without structure, and 1.8 at least with kinds
KINDS = 1.6
LEAST = 1e-6  # variance


class Likeness(NamedTuple):
    """`chance` (n, centres) that a device is like each centre; NaN of oneself. `whole`: the chance
    that all devices are alike; `kinds`: whether there are kinds.
    """

    chance: Array
    whole: float
    kinds: bool


def likeness(
    sums: DeviceSums,
    near: Array,
    centres: IntArray,
    spread: Variances,
    Sigma: Array,
    whole: float,
    level: bool,
) -> Likeness:
    """From the models of near (n, d), its Sigma, and the variances of one spread."""
    every = np.arange(sums.product.shape[1])
    model = MixedModel(every, full=True, loud=True, level=level)
    centre = model.centre(sums, spread)
    W = near[centres]
    about_them = place_chances(sums, spread.noise.each, W, Sigma)
    mine = centres[None, :] == np.arange(len(near))[:, None]
    about_them = np.where(mine, -np.inf, about_them)
    about_all = place_chances(sums, spread.noise.each, centre[None], spread.Sigma)[:, 0]
    many = np.maximum((~mine).sum(axis=1), 1)
    by_kind = logsumexp(about_them, axis=1) - np.log(many)
    kinds = bool((by_kind - about_all).mean() > KINDS)
    facts = FleetFacts(same_place(W, Sigma, spread.Sigma), whole, kinds)
    chance = facts.chance(about_them, about_all, many)
    return Likeness(np.where(mine, np.nan, chance), whole, kinds)


class FleetFacts(NamedTuple):
    """What a fleet knows of its likeness: the chance that two centres are in one place (centres,
    centres), the chance that all devices are alike, and whether there are kinds.
    """

    same: Array
    whole: float
    kinds: bool

    def chance(self, about_them: Array, about_all: Array, many: Array) -> Array:
        """(n, centres) that a device is like each of the `many` (n,) centres that it may have, by
        how likely its rows are about each centre and about that of all.
        """
        by_kind = logsumexp(about_them, axis=1) - np.log(many)
        either = np.logaddexp(by_kind, about_all)
        posterior = np.exp(about_them - either[:, None]) / many[:, None]
        found = posterior @ self.same
        found = self.whole + (1.0 - self.whole) * (1.0 if self.kinds else 0.5) * found
        return np.asarray(np.clip(found, 0.0, 1.0))


def chance_of_one(one: float, spread: float, variances: int) -> float:
    """How likely one model for all is against its spread, two nats a variance given to it.

    >>> (
    ...     round(chance_of_one(-100.0, -90.0, 11), 3),
    ...     round(chance_of_one(-100.0, -50.0, 11), 3),
    ... )
    (1.0, 0.0)
    """
    return float(expit(one - spread + 2 * variances))


def place_chances(
    sums: DeviceSums, precision: Array, places: Array, Sigma: Array
) -> Array:
    """(n, places) how likely every place is the centre of a device's model, in logarithms."""
    n, d = sums.product.shape
    G = precision[:, None, None] * sums.square
    b = precision[:, None] * sums.product
    P = np.linalg.inv(Sigma + LEAST * np.eye(d))
    V = np.linalg.inv(G + P)
    side = G @ V
    H = G - side @ G
    h = b - np.einsum("nij,nj->ni", side, b)
    outer = (places[:, :, None] * places[:, None, :]).reshape(len(places), d * d)
    quad = np.einsum("ni,nij,nj->n", b, V, b)
    size = np.linalg.slogdet(V)[1] + np.linalg.slogdet(P)[1]
    own = (quad + size) / 2
    return np.asarray(h @ places.T - H.reshape(n, d * d) @ outer.T / 2 + own[:, None])


def same_place(W: Array, Sigma: Array, spread: Array) -> Array:
    """(places, places) the chance that two centres are in one place and not just in one fleet."""
    narrow = 2 * (Sigma + LEAST * np.eye(len(Sigma)))
    wide = narrow + 2 * spread
    odds = np.linalg.slogdet(wide)[1] - np.linalg.slogdet(narrow)[1]
    odds = (odds - _distances(W, narrow) + _distances(W, wide)) / 2
    return np.asarray(expit(odds))


def _distances(W: Array, Sigma: Array) -> Array:
    """(places, places) squared distances in units of Sigma."""
    U = W @ np.linalg.cholesky(np.linalg.inv(Sigma))
    square = (U**2).sum(axis=1)
    apart = square[:, None] + square[None, :] - 2 * U @ U.T
    return np.asarray(np.maximum(apart, 0.0))
