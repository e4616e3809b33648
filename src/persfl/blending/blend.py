"""Re-exports `persfl.methods.blend`."""

from persfl.methods.blend.algorithm import blend_over
from persfl.methods.blend.offers_stage import blend

__all__ = ["blend", "blend_over"]
