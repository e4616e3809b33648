"""persfl: personalized federated learning by finding out who really helps.

A target device has few rows and may not see anybody else's. Each round it asks a few peers to take
one small training step on their own rows from its model, scores each answer on its own rows, and
adopts the one that helps most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from persfl.adopters import Best, BestOrStay, TopK, Weighted
    from persfl.devices import Devices
    from persfl.errors import PersflError, PersflWarning
    from persfl.estimators import (
        DeviceKFold,
        LeaveDevicesOut,
        PersonalizedClassifier,
        PersonalizedRegressor,
    )
    from persfl.fleets import ArrayFleet, LoopFleet
    from persfl.learners import Estimator, Linear, Tree
    from persfl.loop import personalize
    from persfl.proposers import GradientStep, Refit
    from persfl.rules import kin
    from persfl.samplers import Nobody, SameCluster, Uniform
    from persfl.trust import Trust
    from persfl.types import Choice, Data, Round

__version__ = "0.2.0"

__all__ = [
    "ArrayFleet",
    "Best",
    "BestOrStay",
    "Choice",
    "Data",
    "DeviceKFold",
    "Devices",
    "Estimator",
    "GradientStep",
    "LeaveDevicesOut",
    "Linear",
    "LoopFleet",
    "Nobody",
    "PersflError",
    "PersflWarning",
    "PersonalizedClassifier",
    "PersonalizedRegressor",
    "Refit",
    "Round",
    "SameCluster",
    "TopK",
    "Tree",
    "Trust",
    "Uniform",
    "Weighted",
    "kin",
    "personalize",
]

# Names are looked up when they are first used: importing scikit-learn and pandas takes a second
# that `persfl --help` need not wait.
_HOME = {
    "ArrayFleet": "fleets",
    "Best": "adopters",
    "BestOrStay": "adopters",
    "Choice": "types",
    "Data": "types",
    "DeviceKFold": "estimators",
    "Devices": "devices",
    "Estimator": "learners",
    "GradientStep": "proposers",
    "LeaveDevicesOut": "estimators",
    "Linear": "learners",
    "LoopFleet": "fleets",
    "Nobody": "samplers",
    "PersflError": "errors",
    "PersflWarning": "errors",
    "PersonalizedClassifier": "estimators",
    "PersonalizedRegressor": "estimators",
    "Refit": "proposers",
    "Round": "types",
    "SameCluster": "samplers",
    "TopK": "adopters",
    "Tree": "learners",
    "Trust": "trust",
    "Uniform": "samplers",
    "Weighted": "adopters",
    "kin": "rules",
    "personalize": "loop",
}


def late_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """`__getattr__` of a package whose names are imported when they are first used, each from its
    module.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return find


__getattr__ = late_names(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
