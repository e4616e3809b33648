"""What leaves a target, as arrays: its weights (Algorithm 1), or what its model says at the
public points (Algorithm 2).
"""

from __future__ import annotations

import numpy as np

from persfl.learners.storage import AnyArray, Arrays
from persfl.proposers import GradientStep, Refit
from persfl.types import Learner, Probe
from persfl.wire.codec import WireError, finite
from persfl.wire.models import model_from


def sends_model(proposer: GradientStep | Refit, learner: Learner) -> bool:
    """Whether a probe is the target's model: for gradient steps, and for a refit by proximal
    steps.
    """
    return _asking_labels(proposer, learner) is None


def _asking_labels(proposer: GradientStep | Refit, learner: Learner) -> Refit | None:
    """The refit whose probe is what the model says at the public points."""
    if isinstance(proposer, GradientStep) or proposer.near(learner) > 0:
        return None
    return proposer


def probe_to(
    proposer: GradientStep | Refit, learner: Learner, probe: Probe
) -> dict[str, AnyArray]:
    """A probe as arrays."""
    refit = _asking_labels(proposer, learner)
    if refit is None:
        return {"vector": np.asarray(probe)}
    named = {"labels": probe}
    if refit.softly(learner):
        named = dict(zip(("chances", "labels"), probe, strict=True))
    return {name: np.asarray(part, dtype=np.float64) for name, part in named.items()}


def probe_from(
    proposer: GradientStep | Refit,
    learner: Learner,
    arrays: Arrays,
    features: int,
    classes: int,
) -> Probe:
    """The inverse of `probe_to`, for arrays that somebody else sent.

    >>> from persfl import Linear
    >>> probe_from(
    ...     GradientStep(0.1), Linear(), {"vector": np.ones(3)}, features=2, classes=0
    ... )
    Traceback (most recent call last):
    ...
    persfl.wire.codec.WireError: a model does not have the form of its family.
    """
    refit = _asking_labels(proposer, learner)
    if refit is None:
        return model_from(learner, arrays, features)
    softly = refit.softly(learner)
    points = len(refit.public)
    if set(arrays) != ({"chances", "labels"} if softly else {"labels"}):
        raise WireError("a probe does not have the form of its family.")
    labels = arrays["labels"]
    if not softly:
        labels = finite(labels, (points,))
        if classes and not np.isin(labels, np.arange(classes)).all():
            raise WireError("a probe's labels must be classes.")
        return labels
    labels = finite(labels, (min(labels.size, max(classes, 1)),))
    chances = finite(arrays["chances"], (points, len(labels)))
    known = len(labels) > 0 and np.isin(labels, np.arange(classes)).all()
    if not known or not ((chances >= 0) & (chances <= 1)).all():
        raise WireError(
            "a probe's labels must be classes, and its chances lie between 0 and 1."
        )
    return chances, labels
