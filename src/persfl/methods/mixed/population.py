"""What a fleet knows of a device before it shows a row, and what a handful of rows make of that.

Each offer of the default rule is a prior: a centre and how far devices are from it. A newcomer's
model is the posterior under that prior, offer by offer, mixed by the fleet's shares. Nobody else's
rows are needed, and nobody else's model changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from persfl.errors import InputError
from persfl.learners.linear import Linear
from persfl.learners.storage.named_arrays import has_form
from persfl.methods.mixed.device_sums import DeviceSums, about_own_means
from persfl.methods.mixed.working_rows import (
    ROUNDS,
    LossSums,
    first_reach,
    next_reach,
    safe_part,
    usual_score,
)
from persfl.types import Array

_ROUNDS = 3  # in which a newcomer's noise and its model are found from one another
_NOTE = "population_"
_FORMS = {
    "names": "U K",
    "shares": "f8 K",
    "centre": "f8 K D",
    "Sigma": "f8 K D D",
    "usual": "f8 K",
    "alike": "f8 K",
    "centres": "f8 M D",
    "axes": "f8 F A",
}


@dataclass(frozen=True, eq=False)
class Population:
    """The priors of all offers.

    `names` and `shares` (offers,); `centre` (offers, columns); `Sigma` (offers, columns, columns),
    0 in columns that are not personal; `usual` precision of noise, and how many rows' worth of
    evidence there is for it (`alike`); `centres` (devices, columns) for the offer "near"; `axes`
    (features, columns without the level) or no columns at all where columns are features.
    """

    names: Array
    shares: Array
    centre: Array
    Sigma: Array
    usual: Array
    alike: Array
    centres: Array
    axes: Array

    def newcomer(self, X: Array, y: Array, weight: Array, learner: Linear) -> Array:
        """(features and, last, the level) the model of a device with these rows; or none."""
        level = learner.intercept
        Z = X @ self.axes if self.axes.size else X
        Z = np.column_stack([np.ones(len(Z)), Z]) if level else Z
        found = np.zeros(Z.shape[1])
        for k, name in enumerate(self.names.tolist()):
            if self.shares[k] > 0:
                model = self._settled(k, name, Z, y, weight, learner)
                found += self.shares[k] * model
        slopes = found[int(level) :]
        slopes = self.axes @ slopes if self.axes.size else slopes
        return np.append(slopes, found[:1]) if level else slopes

    def _settled(
        self, k: int, name: str, Z: Array, y: Array, weight: Array, learner: Linear
    ) -> Array:
        """One offer's model, of other losses than the squared one by working rows."""
        sums = DeviceSums.of(Z, y, weight, np.array([0, len(y)]))
        if learner.kind == "squared" or not weight.sum() > 0:
            return self._offer(k, name, sums)
        model = self.centre[k]
        every = np.array([0, len(y)])
        usual = usual_score(float(weight @ y), float(weight.sum()))
        first = first_reach(learner, usual)
        reach = next_reach(learner, first, float(self.usual[k]))
        for _ in range(ROUNDS):
            made = LossSums.of(learner, Z, Z @ model, y, weight, every, reach)
            step = self._offer(k, name, made.about(learner, reach, model[None])) - model
            model = model + safe_part(learner, Z @ step) * step
        return np.asarray(model)

    def _offer(self, k: int, name: str, sums: DeviceSums) -> Array:
        """One offer's model for this device."""
        used, back = sums, None
        if name == "centred level":
            used, back = about_own_means(sums)
        t = float(self.usual[k])
        model = self.centre[k]
        for _ in range(_ROUNDS):
            model = self._posterior(k, name, used, t)
            rows = float(used.weight[0])
            left = float(used.residual(model[None])[0])
            t = (self.alike[k] + rows) / (self.alike[k] / self.usual[k] + left)
        return np.asarray(model if back is None else back[0].T @ model)

    def _posterior(self, k: int, name: str, sums: DeviceSums, t: float) -> Array:
        G = t * sums.square[0]
        b = t * sums.product[0]
        Sigma = self.Sigma[k]
        # Sigma (I + G Sigma)^-1 = (G + Sigma^-1)^-1, also where Sigma is 0
        V = Sigma @ np.linalg.inv(np.eye(len(G)) + G @ Sigma)
        centre = self.centre[k]
        if name == "near":
            H = G - G @ V @ G
            h = b - G @ V @ b
            W = self.centres
            chance = W @ h - np.einsum("mi,ij,mj->m", W, H, W) / 2
            chance = np.exp(chance - chance.max())
            centre = (chance / chance.sum()) @ W
        return np.asarray(centre + V @ (b - G @ centre))

    def to_notes(self) -> dict[str, Any]:
        """As plain arrays."""
        return {_NOTE + one.name: getattr(self, one.name) for one in fields(self)}

    @staticmethod
    def from_notes(notes: Mapping[str, Any], features: int) -> Population | None:
        """The inverse, for arrays of somebody else's, maybe; None where there are none."""
        names = {_NOTE + name: name for name in _FORMS}
        if not set(names) & set(notes):
            return None
        try:
            arrays = {short: np.asarray(notes[name]) for name, short in names.items()}
        except KeyError:
            arrays = {}
        sound = bool(arrays) and has_form(arrays, _FORMS)
        wide = arrays["axes"].shape if sound else (0, 0)
        sound = sound and wide[0] in (0, features)
        numbers = [value for name, value in arrays.items() if name != "names"]
        if not sound or not all(np.isfinite(value).all() for value in numbers):
            raise InputError("what the run knows of its population is damaged.")
        return Population(**arrays)
