"""Trees over a federation of protected devices: one exchange of noised sums in leaves, and each
target is handed those of the others.
"""

from __future__ import annotations

import numpy as np

from persfl.errors import InputError
from persfl.federation.blend_exchange import (
    NOTHING,
    BlendExchange,
    BlendScene,
    Letter,
)
from persfl.federation.letters import Letters
from persfl.federation.told_leaves import LeavesFamily
from persfl.methods.blend.fixed_point import counted
from persfl.methods.blend.mixture import BlendResult
from persfl.methods.blend.questions import LeafSums, Take
from persfl.methods.mixed.near_round import SHARED
from persfl.types import Array, Model


class LeavesSite(BlendExchange):
    """The devices of a run."""

    def __init__(self, letters: Letters, scene: BlendScene) -> None:
        self.family = LeavesFamily(letters.terms)
        super().__init__(letters, self.family, scene)

    def blended(self) -> BlendResult:
        """The forest of everybody's leaves, for those that were handed theirs; None for others."""
        told = self._told()
        total = told.sum(axis=0)
        trees = self.family.trees
        forest = trees.models(self.family.learner, trees.heard(total).means)
        letters = [
            Letter(i, Take(model=(total - told[i]).ravel()))
            for i in self.targets.tolist()
        ]
        models: list[Model] = [None] * self.n
        for letter, reply in zip(letters, self.ask(letters), strict=True):
            if reply is not NOTHING:
                models[letter.to] = forest
        nothing = np.zeros((self.n, len(SHARED)))
        return BlendResult(models, SHARED, nothing, ())

    def _told(self) -> Array:
        """(devices, each, all leaves) one exchange; zeros of those that tell nothing usable."""
        replies = self.ask([Letter(i, LeafSums()) for i in range(self.n)])
        found = [self.family.read(told) for told in replies]
        if all(told is None for told in found):
            raise InputError("no device tells sums in the leaves of trees.")
        nothing = np.zeros(self.family.trees.form)
        told = np.stack([nothing if each is None else each for each in found])
        return _bounded(told)


def _bounded(told: Array) -> Array:
    """Nobody's sums are longer than ten usual ones, nor, of three or more, than all others'."""
    length = np.linalg.norm(told, axis=(1, 2))
    less = counted(length) / np.maximum(length, 1e-300)
    return np.asarray(told * less[:, None, None])
