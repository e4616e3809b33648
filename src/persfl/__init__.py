"""persfl: personalized federated learning by finding out who really helps.

A target device has few rows and may not see anybody else's. Each round it asks a few peers to take one small training step on their
own rows from its model, scores each answer on its own rows, and adopts the one that helps most.
"""

from persfl.adopters import Best, BestOrStay, TopK, Weighted
from persfl.devices import Devices
from persfl.errors import PersflError, PersflWarning
from persfl.fleets import ArrayFleet, LoopFleet
from persfl.learners import Estimator, Linear
from persfl.loop import personalize
from persfl.proposers import GradientStep, Refit
from persfl.samplers import Nobody, SameCluster, Uniform
from persfl.trust import Trust
from persfl.types import Choice, Data, Round

__version__ = "0.1.0"

__all__ = [
    "ArrayFleet",
    "Best",
    "BestOrStay",
    "Choice",
    "Data",
    "Devices",
    "Estimator",
    "GradientStep",
    "Linear",
    "LoopFleet",
    "Nobody",
    "PersflError",
    "PersflWarning",
    "Refit",
    "Round",
    "SameCluster",
    "TopK",
    "Trust",
    "Uniform",
    "Weighted",
    "personalize",
]
