"""Learners: model families. A learner is the only code that knows what a model is."""

from persfl.learners.estimator import Estimator
from persfl.learners.linear import Linear
from persfl.learners.mlp import MLP
from persfl.learners.network import Network
from persfl.learners.tree import Tree

__all__ = ["MLP", "Estimator", "Linear", "Network", "Tree"]
