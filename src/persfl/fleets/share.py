"""A fleet whose peers answer with their own current models, and train on own rows between rounds.

Every round all targets first take some steps on their rows. Then a target asks peers, who answer
with what they have now; it scores those models on its own rows, and adopts a mix.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from persfl.fleets.refusals import diverged
from persfl.proposers.gradient import distance
from persfl.seeds import stream
from persfl.types import Answers, Array, Choice, IntArray

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet

MOST = 1e30  # a loss beyond it is as good as this one


class Share:
    """Around a fleet whose devices can step from, and score, models of others.

    >>> from persfl import ArrayFleet, BestOrStay, GradientStep, Linear, Uniform
    >>> from persfl.loop import personalize
    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(n=20, clusters=2, rows=6, features=3, seed=0)
    >>> fleet = ArrayFleet(devices, learner=Linear(), proposer=GradientStep(0.1))
    >>> sharing = Share(fleet, local=3)
    >>> for round_ in personalize(
    ...     sharing, sampler=Uniform(5), adopter=BestOrStay(), rounds=60
    ... ):
    ...     pass
    >>> bool(round_.loss.mean() < 0.01)
    True
    """

    def __init__(self, inner: InProcessFleet, *, local: int = 1, seed: int = 0) -> None:
        self.inner = inner
        self.local = local
        self.seed = seed
        # whose model is whose: a device that wants none has none to share
        self._place = np.full(inner.n, -1)
        self._place[inner.targets] = np.arange(len(inner.targets))

    @property
    def n(self) -> int:
        """How many devices there are."""
        return self.inner.n

    @property
    def targets(self) -> IntArray:
        """Who has a model."""
        return self.inner.targets

    @property
    def ids(self) -> Sequence[Hashable]:
        """The devices' ids."""
        return self.inner.ids

    @property
    def models(self) -> Any:
        """One model per target."""
        return self.inner.models

    def observe(self, r: int) -> None:
        """Let data arrive."""
        self.inner.observe(r)

    def trained(self, r: int) -> Array:
        """(T, size) every target's model after its own steps of a round."""
        models = np.asarray(self.inner.models)
        who = self.inner.targets
        for k in range(self.local):
            # by name: a step that goes far would take others along, and is left out
            models = self.inner.stepped(
                models, who, stream(self.seed, "own", r, k).at(who)
            )
        return models

    def probe(self, peers: IntArray, r: int) -> Answers:
        """Train, then score the models of peers; infinite for nobody."""
        models = self.trained(r)
        lost = ~np.isfinite(models).all(axis=-1)
        if lost.any():
            first = int(self.targets[np.argmax(lost)])
            raise diverged(r, self.ids[first], self.inner.proposer.advice())
        self.inner.models = models
        own = self.inner.probe(peers[:, :0], r).losses
        at = np.where(peers >= 0, self._place[peers], -1)
        shown = np.unique(at[at >= 0])
        losses = np.full(peers.shape, np.inf)
        lengths = np.full(peers.shape, np.nan)
        if len(shown):
            told = self.inner.scored(models[shown])
            column = np.searchsorted(shown, np.maximum(at, shown[0]))
            there = np.take_along_axis(told, np.minimum(column, len(shown) - 1), axis=1)
            # what a device tells may be any number; a record of rounds keeps small ones
            there = np.where(np.isfinite(there), np.clip(there, -MOST, MOST), np.inf)
            losses = np.where(at >= 0, there, np.inf)
            apart = distance(models[:, None], models[np.maximum(at, 0)])
            lengths = np.where(at >= 0, apart, np.nan)
        return Answers(np.column_stack([own, losses]), lengths)

    def adopt(self, choice: Choice) -> None:
        """Mix own models with those of the chosen peers."""
        models = np.asarray(self.inner.models)
        at = np.where(choice.peers >= 0, self._place[choice.peers], -1)
        weights = np.where(at >= 0, choice.weights, 0.0)
        theirs = np.where(at[..., None] >= 0, models[np.maximum(at, 0)], 0.0)
        mixed = (weights[..., None] * theirs).sum(axis=1)
        self.inner.models = mixed + (1.0 - weights.sum(axis=1))[:, None] * models
