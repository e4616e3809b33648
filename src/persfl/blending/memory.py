"""Re-exports `persfl.methods.blend.neighbours`."""

from persfl.methods.blend.neighbours import Neighbours

__all__ = ["Neighbours"]
