"""A run of the loop: what it is made of (`Plan`), where it stands (`State`), who keeps it (`Keep`),
what its defaults are, and `train`, which runs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from persfl import late_names

if TYPE_CHECKING:
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
    from persfl.training.training_run import HALVINGS, InProcess, Site, runaways, train

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

__getattr__ = late_names(
    __name__,
    {
        "KIN_ROUNDS": "state",
        "NETWORK_STEPS": "state",
        "REFIT_ROUNDS": "state",
        "STEP_ROUNDS": "state",
        "STEP_SIZES": "state",
        "Forget": "state",
        "Keep": "state",
        "Pace": "state",
        "Plan": "state",
        "State": "state",
        "peers_asked": "state",
        "peers_of": "state",
        "resumable": "state",
        "rounds_for": "state",
        "step_of": "state",
        "HALVINGS": "training_run",
        "InProcess": "training_run",
        "Site": "training_run",
        "runaways": "training_run",
        "train": "training_run",
    },
)
