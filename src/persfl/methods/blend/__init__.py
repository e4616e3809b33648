"""Blend: mixing what own rows, the fleet and neighbours offer, by the evidence of own rows and
of the fleet.
"""

from persfl.methods.blend.algorithm import blend, blend_over
from persfl.methods.blend.mixture import SORTS, Blended, sorts
from persfl.methods.blend.offers.descent import blend_networks
from persfl.methods.blend.offers.refits import blend_refits
from persfl.methods.blend.stage import run

__all__ = [
    "SORTS",
    "Blended",
    "blend",
    "blend_networks",
    "blend_over",
    "blend_refits",
    "run",
    "sorts",
]
