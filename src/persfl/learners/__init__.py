"""Learners: model families. A learner is the only code that knows what a model is."""

from persfl.learners.estimator import Estimator
from persfl.learners.linear import Linear

__all__ = ["Estimator", "Linear"]
