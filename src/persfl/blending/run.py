"""Re-exports `persfl.methods.blend.stage`."""

from persfl.methods.blend.stage import blend_stage as run

__all__ = ["run"]
