"""Re-exports `persfl.methods.blend.offers_stage`."""

from persfl.methods.blend.offers_stage import blend_stage as run

__all__ = ["run"]
