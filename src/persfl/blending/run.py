"""Re-exports `persfl.methods.blend.stage`."""

from persfl.methods.blend.stage import run

__all__ = ["run"]
