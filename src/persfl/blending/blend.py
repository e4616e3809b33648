"""Re-exports `persfl.methods.blend.algorithm`."""

from persfl.methods.blend.algorithm import blend, blend_over

__all__ = ["blend", "blend_over"]
