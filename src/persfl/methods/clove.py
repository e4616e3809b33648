"""CLoVE: clusters of devices whose losses under all current models are alike.

e_i = (L_i(w_1), ..., L_i(w_K))^(1/2)                  a device's losses are where it stands
clusters: k-means of e_i;  each is given the model with which it has least loss, one each
w_k <- mean over its cluster of (their steps from w_k), weighted by rows

IFCA sends a device to the model that fits it best, so a model that starts badly stays empty; here
devices are grouped by all their losses, and no model needs to be good for that. (Of losses
themselves the largest alone would decide: their roots are as far apart as models are.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.optimize import linear_sum_assignment

from persfl.checks import many, whole
from persfl.methods.ifca import starts_apart
from persfl.methods.method_fields import setting
from persfl.methods.shared_method import SteppedMethod
from persfl.methods.shared_models import hold, mean_by_rows, quiet_round
from persfl.seeds import Stream, stream
from persfl.trust import Trust
from persfl.types import Array, IntArray, Round

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet

MOST = 1e12  # a loss beyond it is as good as this one


def clusters_of(losses: Array, place: Stream) -> IntArray:
    """(devices,) which model a device's cluster has, from losses (devices, models). Who tells none
    goes with most of the others, and who is like nobody where it has least loss.

    >>> losses = np.array([[1.0, 5.0], [1.1, 5.2], [4.0, 2.0], [np.inf, 2.2]])
    >>> clusters_of(losses, stream(0, "clusters")).tolist()
    [0, 0, 1, 0]
    """
    tells = np.isfinite(losses).all(axis=1)
    found = np.zeros(len(losses), dtype=np.int64)
    if not tells.any():
        return found
    found[tells] = _of_several(np.clip(losses[tells], -MOST, MOST), place)
    found[~tells] = np.bincount(found[tells]).argmax()
    return found


def _of_several(losses: Array, place: Stream) -> IntArray:
    """The same of devices that tell, with no cluster of one where others can fill all of them.

    A device that is a cluster by itself takes a model from the others, who share what is left: a
    lie about losses would do.
    """
    found: IntArray = losses.argmin(axis=1)
    inside = np.arange(len(losses))
    while True:
        found[inside] = _grouped(losses[inside], place)
        alone = np.bincount(found[inside])[found[inside]] == 1
        if not alone.any() or len(inside) <= 2 * losses.shape[1]:
            return found
        far = np.where(alone, _nearest(losses[inside]), -1.0)
        unlike = inside[far.argmax()]
        found[unlike] = losses[unlike].argmin()
        inside = inside[inside != unlike]


def _nearest(losses: Array) -> Array:
    """(devices,) how far each is from the one that is most like it."""
    where = _places(losses)
    apart = np.linalg.norm(where[:, None] - where[None], axis=2)
    np.fill_diagonal(apart, np.inf)
    return np.asarray(apart.min(axis=1))


def _places(losses: Array) -> Array:
    """Where devices stand."""
    return np.asarray(np.sqrt(losses - min(0.0, float(losses.min()))))


def _grouped(losses: Array, place: Stream) -> IntArray:
    """The same by k-means alone."""
    from sklearn.cluster import KMeans  # takes long to import, and few need it

    where = _places(losses)
    distinct = min(losses.shape[1], len(np.unique(where, axis=0)))
    grouped = KMeans(distinct, n_init=5, random_state=place.integer())
    group = np.asarray(grouped.fit_predict(where))
    mean = np.stack([losses[group == g].mean(axis=0) for g in range(distinct)])
    cluster, model = linear_sum_assignment(mean)
    given = np.zeros(distinct, dtype=np.int64)
    given[cluster] = model
    return np.asarray(given[group])


@dataclass(frozen=True)
class CLoVE(SteppedMethod):
    """One model per cluster of devices whose losses are alike."""

    name: ClassVar[str] = "clove"
    about: ClassVar[str] = "One model per cluster of devices with like losses"
    source: ClassVar[str] = "Bhatia, Papadis, Kodialam, Lakshman, Chakrabarty 2025"
    told: ClassVar[str] = "the number of clusters"
    leaves: ClassVar[str] = (
        "Its losses of all common models, and where a step on its rows takes its cluster's."
    )

    clusters: int = setting(2, "how many clusters there are")

    def rounds_over(
        self, fleet: InProcessFleet, rounds: int, seed: int
    ) -> Iterator[Round]:
        """Each round all targets tell losses, are grouped, and step."""
        who = fleet.targets
        n = len(who)
        why = many(n, "device")
        told = whole("clusters", self.clusters, least=1, most=n, why=why)
        models = starts_apart(fleet, told, seed)
        trust = Trust.blank(fleet)
        for r in range(rounds):
            mine = clusters_of(fleet.scored(models), stream(seed, "clusters", r))
            place = stream(seed, "answer", r).at(who)
            moved = fleet.stepped(models[mine], who, place)
            for k in np.unique(mine):
                some = mine == k
                models[k] = mean_by_rows(fleet, moved[some], who[some])
            hold(fleet, models[mine], r)
            yield quiet_round(fleet, r, trust)
