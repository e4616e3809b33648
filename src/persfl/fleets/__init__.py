"""Fleets: devices and the targets' models, wherever they live."""

from __future__ import annotations

from typing import TYPE_CHECKING

from persfl import late_names

if TYPE_CHECKING:
    from persfl.fleets.array_fleet import ArrayFleet
    from persfl.fleets.guarded import Guarded
    from persfl.fleets.loop_fleet import LoopFleet

__all__ = ["ArrayFleet", "Guarded", "LoopFleet"]

__getattr__ = late_names(
    __name__,
    {
        "ArrayFleet": "array_fleet",
        "Guarded": "guarded",
        "LoopFleet": "loop_fleet",
    },
)
