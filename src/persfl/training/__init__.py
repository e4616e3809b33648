"""A run of the loop: what it is made of (`Plan`), where it stands (`State`), who keeps it (`Keep`),
what its defaults are, and `train`, which runs it.
"""

from persfl.training.state import (
    KIN_ROUNDS,
    NETWORK_STEPS,
    REFIT_ROUNDS,
    STEP_ROUNDS,
    STEP_SIZES,
    Forget,
    Keep,
    Pace,
    Plan,
    State,
    peers_asked,
    peers_of,
    resumable,
    rounds_for,
    step_of,
)
from persfl.training.train import HALVINGS, InProcess, Site, runaways, train

__all__ = [
    "HALVINGS",
    "KIN_ROUNDS",
    "NETWORK_STEPS",
    "REFIT_ROUNDS",
    "STEP_ROUNDS",
    "STEP_SIZES",
    "Forget",
    "InProcess",
    "Keep",
    "Pace",
    "Plan",
    "Site",
    "State",
    "peers_asked",
    "peers_of",
    "resumable",
    "rounds_for",
    "runaways",
    "step_of",
    "train",
]
