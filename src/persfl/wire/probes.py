"""What leaves a target, as arrays: its weights (Algorithm 1), or what its model says at the
public points (Algorithm 2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from persfl.proposers import GradientStep
from persfl.wire.codec import WireError
from persfl.wire.models import finite, model_from


def sends_model(proposer: Any, learner: Any) -> bool:
    """Whether a probe is the target's model: for gradient steps, and for a refit by proximal
    steps.
    """
    return isinstance(proposer, GradientStep) or proposer.near(learner) > 0


def probe_to(proposer: Any, learner: Any, probe: Any) -> dict[str, Any]:
    """A probe as arrays."""
    if sends_model(proposer, learner):
        return {"vector": np.asarray(probe)}
    if proposer.softly(learner):
        chances, labels = probe
        return {
            "chances": np.asarray(chances, dtype=np.float64),
            "labels": np.asarray(labels, dtype=np.float64),
        }
    return {"labels": np.asarray(probe, dtype=np.float64)}


def probe_from(
    proposer: Any, learner: Any, arrays: Mapping[str, Any], features: int, classes: int
) -> Any:
    """The inverse of `probe_to`, for arrays that somebody else sent.

    >>> from persfl import Linear
    >>> probe_from(
    ...     GradientStep(0.1), Linear(), {"vector": np.ones(3)}, features=2, classes=0
    ... )
    Traceback (most recent call last):
    ...
    persfl.wire.codec.WireError: a model does not have the form of its family.
    """
    if sends_model(proposer, learner):
        return model_from(learner, arrays, features)
    softly = proposer.softly(learner)
    points = len(proposer.public)
    if set(arrays) != ({"chances", "labels"} if softly else {"labels"}):
        raise WireError("a probe does not have the form of its family.")
    if not softly:
        labels = finite(arrays["labels"], (points,))
        if classes and not np.isin(labels, np.arange(classes)).all():
            raise WireError("a probe's labels must be classes.")
        return labels
    labels = arrays["labels"]
    labels = finite(labels, (min(labels.size, max(classes, 1)),))
    chances = finite(arrays["chances"], (points, len(labels)))
    if (
        not len(labels)
        or not np.isin(labels, np.arange(classes)).all()
        or (chances < 0).any()
        or (chances > 1).any()
    ):
        raise WireError(
            "a probe's labels must be classes, and its chances lie between 0 and 1."
        )
    return chances, labels


def nested(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays under a prefix.

    >>> nested("3", {"vector": 1})
    {'3.vector': 1}
    """
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def within(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `nested`: those with this prefix, without it."""
    return {
        name[len(prefix) + 1 :]: array
        for name, array in arrays.items()
        if name.startswith(f"{prefix}.")
    }
