"""Fleets: devices and the targets' models, wherever they live."""

from persfl.fleets.array import ArrayFleet
from persfl.fleets.guarded import Guarded
from persfl.fleets.loop import LoopFleet

__all__ = ["ArrayFleet", "Guarded", "LoopFleet"]
