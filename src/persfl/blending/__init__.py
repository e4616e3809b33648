"""Blend under its earlier names; it lives in `persfl.methods.blend`."""

from persfl.methods.blend.algorithm import blend_over
from persfl.methods.blend.mixture import SORTS, BlendResult, sorts
from persfl.methods.blend.offers_stage import blend
from persfl.methods.blend.offers_stage import blend_stage as run

__all__ = [
    "SORTS",
    "BlendResult",
    "blend",
    "blend_over",
    "run",
    "sorts",
]
