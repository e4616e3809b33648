"""Learners: model families. A learner is the only code that knows what a model is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from persfl import late_names

if TYPE_CHECKING:
    from persfl.learners.estimator import Estimator
    from persfl.learners.linear import Linear
    from persfl.learners.mlp import MLP
    from persfl.learners.network import Network
    from persfl.learners.tree import Tree

__all__ = ["MLP", "Estimator", "Linear", "Network", "Tree"]

__getattr__ = late_names(
    __name__,
    {
        "Estimator": "estimator",
        "Linear": "linear",
        "MLP": "mlp",
        "Network": "network",
        "Tree": "tree",
    },
)
