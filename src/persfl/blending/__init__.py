"""Blend under its earlier names; it lives in `persfl.methods.blend`."""

from persfl.methods.blend import (
    SORTS,
    BlendResult,
    blend,
    blend_over,
    sorts,
)
from persfl.methods.blend import blend_stage as run

__all__ = [
    "SORTS",
    "BlendResult",
    "blend",
    "blend_over",
    "run",
    "sorts",
]
