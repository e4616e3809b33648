"""Blend: mixing what own rows, the fleet and neighbours offer, by the evidence of own rows and
of the fleet.
"""

from persfl.blending.blend import blend, blend_over
from persfl.blending.networks import blend_networks
from persfl.blending.offered import SORTS, Blended, sorts
from persfl.blending.refits import blend_refits
from persfl.blending.run import run

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
