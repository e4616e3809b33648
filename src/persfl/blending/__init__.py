"""Blend: mixing what own rows, the fleet and neighbours offer, by the evidence of own rows and of the fleet."""

from persfl.blending.blend import SORTS, Blended, blend, sorts
from persfl.blending.run import run

__all__ = ["SORTS", "Blended", "blend", "run", "sorts"]
