"""Callbacks of a fit, and the trackers that people already have."""

from persfl.tracking.callbacks import Callback, Told, fleet_metrics, round_metrics
from persfl.tracking.progress_bar import ProgressBar
from persfl.tracking.scalars import TensorBoard, WandB

__all__ = [
    "Callback",
    "ProgressBar",
    "TensorBoard",
    "Told",
    "WandB",
    "fleet_metrics",
    "round_metrics",
]
