"""Proposers: what a peer does when asked."""

from persfl.proposers.gradient import GradientStep
from persfl.proposers.refit import Refit

__all__ = ["GradientStep", "Refit"]
