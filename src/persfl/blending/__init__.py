"""Blend under its earlier names; it lives in `persfl.methods.blend`."""

from persfl.methods.blend import (
    SORTS,
    Blended,
    blend,
    blend_networks,
    blend_over,
    blend_refits,
    run,
    sorts,
)

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
