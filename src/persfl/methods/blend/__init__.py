"""Blend: mixing what own rows, the fleet and neighbours offer, by the evidence of own rows and
of the fleet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from persfl import late_names

if TYPE_CHECKING:
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

__getattr__ = late_names(
    __name__,
    {
        "blend_over": "algorithm",
        "BlendSettings": "blend_settings",
        "SORTS": "mixture",
        "BlendResult": "mixture",
        "sorts": "mixture",
        "blend": "offers_stage",
        "blend_stage": "offers_stage",
        "local_site": "offers_stage",
    },
)
