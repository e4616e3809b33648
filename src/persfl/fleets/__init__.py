"""Fleets: devices and the targets' models, wherever they live."""

from persfl.fleets.array_fleet import ArrayFleet
from persfl.fleets.guarded import Guarded
from persfl.fleets.loop_fleet import LoopFleet

__all__ = ["ArrayFleet", "Guarded", "LoopFleet"]
