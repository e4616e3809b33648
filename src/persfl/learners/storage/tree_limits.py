"""How many trees a learner's models may have, and how deep."""

from __future__ import annotations

from typing import Any

from persfl.learners import any_family
from persfl.learners.any_family import AnyFamily
from persfl.learners.estimator import Estimator
from persfl.learners.tree import Tree
from persfl.types import Learner

DEEPEST = 100  # questions on the way down, where a learner says nothing
MOST_TREES = 5_000  # of a model, where a learner says nothing


def deepest(learner: Learner) -> int:
    """How deep a learner's trees may be."""
    if isinstance(learner, Tree):
        return learner.max_depth
    if isinstance(learner, AnyFamily):
        return any_family.DEEPEST
    said = _setting(learner, "max_depth")
    return DEEPEST if said is None else int(said)


def most_trees(learner: Learner, classes: int) -> int:
    """How many trees a learner's models may have: boosting grows one for each of several classes
    in every step.
    """
    if isinstance(learner, AnyFamily):
        return any_family.TREES
    steps = _setting(learner, "n_estimators")
    boosts = _setting(learner, "learning_rate") is not None
    if steps is None:
        return MOST_TREES if boosts else 1
    return min(int(steps) * (classes if boosts and classes > 2 else 1), MOST_TREES)


def _setting(learner: Learner, name: str) -> Any:
    """What a wrapped estimator says, if it has such a setting."""
    if not isinstance(learner, Estimator):
        return None
    return learner.estimator.get_params(deep=False).get(name)
