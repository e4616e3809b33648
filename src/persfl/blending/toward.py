"""Re-exports `persfl.methods.blend.ridge_refit`."""

from persfl.methods.blend.ridge_refit import Toward

__all__ = ["Toward"]
