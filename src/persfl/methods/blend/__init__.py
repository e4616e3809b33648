"""Blend: mixing what own rows, the fleet and neighbours offer, by the evidence of own rows and
of the fleet.
"""

from persfl.methods.blend.algorithm import blend_over
from persfl.methods.blend.blend_settings import BlendSettings
from persfl.methods.blend.mixture import SORTS, BlendResult, sorts
from persfl.methods.blend.offers_stage import blend, blend_stage, local_site

__all__ = [
    "SORTS",
    "BlendResult",
    "BlendSettings",
    "blend",
    "blend_over",
    "blend_stage",
    "local_site",
    "sorts",
]
