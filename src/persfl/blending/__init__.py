"""Blend: mixing what own rows, the fleet and neighbours offer, by the evidence of own rows and of the fleet."""

from persfl.blending.blend import Blended, blend, sorts

__all__ = ["Blended", "blend", "sorts"]
