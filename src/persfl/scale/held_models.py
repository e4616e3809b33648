"""The models of a method that asks round by round: made before any table is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from persfl.devices import Devices
from persfl.learners.shared_trees import WeighedTrees
from persfl.learners.storage.named_arrays import has_form
from persfl.methods.mixed.told_models import ToldModels
from persfl.scale.fleet_arrays import Arrays, damaged
from persfl.scale.fleet_model import Ids
from persfl.types import Array, IntArray

_HELD = {
    "held_models": "f8 N D",
    "held_pooled": "f8 D",
    "held_made_of": "f8 N 3",
    "held_at": "i8 N K",
    "held_share": "f8 N K",
    "held_chance": "f8 N K",
    "peers": "U|i8 N",
}


@dataclass(frozen=True, eq=False)
class HeldModels:
    """Of all devices, the level first: `models` (n, columns) and `pooled`, one for all; `made_of`
    (n, 3), NaN where it is not known; of the peers that a model took most from their positions `at`
    (n, named), their `share` in it, and the `chance` that they are like the device. All ids are
    `peers`.
    """

    models: Array
    pooled: Array
    made_of: Array
    at: IntArray
    share: Array
    chance: Array
    peers: Ids

    @property
    def newcomer(self) -> Array:
        return self.pooled

    @property
    def trees(self) -> WeighedTrees:
        return ()

    def told(self, inside: Devices, positions: IntArray) -> ToldModels:
        """What was found; rows have been looked at before."""
        at = self.at[positions]
        unknown = np.full(at.shape, np.nan)
        return ToldModels(
            self.models[positions],
            self.made_of[positions],
            at,
            self.share[positions],
            self.chance[positions],
            unknown,
            np.full(len(positions), np.nan),
        )

    def to_arrays(self) -> Arrays:
        """Ready for a file."""
        told = vars(self)
        return {name: told[name.removeprefix("held_")] for name in _HELD}


def is_held(arrays: Mapping[str, Any]) -> bool:
    """Whether a file has such models."""
    return "held_models" in arrays


def held_from(arrays: Mapping[str, Any], features: int, path: Path) -> HeldModels:
    """The inverse of `to_arrays`."""
    if not set(_HELD) <= set(arrays) or not has_form(arrays, _HELD, D=features + 1):
        raise damaged(path)
    at = arrays["held_at"]
    if not ((at >= -1) & (at < len(at))).all():
        raise damaged(path)
    return HeldModels(**{name.removeprefix("held_"): arrays[name] for name in _HELD})
