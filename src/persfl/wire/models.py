"""Models as named arrays on the wire, checked by family when they come back.

    vector learners (linear, networks)      vector
    Tree                                    feature, threshold, left, right, value
    Estimator                               base, labels, slopes, or the nodes of many trees one
    after the other

And probes, what leaves a target: its weights (Algorithm 1), or what its model says at the public
points (Algorithm 2).

>>> import numpy as np
>>> from persfl import Linear
>>> sent = model_to(Linear(), np.array([1.0, 2.0]))
>>> model_from(Linear(), sent, features=2).tolist()
[1.0, 2.0]
>>> model_from(Linear(), {"vector": np.array([1.0, np.nan])}, features=2)
Traceback (most recent call last):
...
persfl.wire.codec.WireError: a model must hold finite numbers of a sensible size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from persfl.errors import InputError
from persfl.learners.storage.family_table import model_to, read_model
from persfl.learners.storage.named_arrays import LARGE, AnyArray, Arrays, is_sensible
from persfl.proposers.gradient import GradientStep
from persfl.types import Learner, Model
from persfl.wire.codec import WireError, finite

if TYPE_CHECKING:
    from persfl.proposers.refit import Refit
    from persfl.types import Learner, Model, Probe

__all__ = [
    "LARGE",
    "finite",
    "model_from",
    "model_to",
    "probe_from",
    "probe_to",
    "sends_model",
]


def model_from(
    learner: Learner, arrays: Arrays, features: int, classes: int = 0
) -> Model:
    """The inverse of `model_to`, for arrays that somebody else sent."""
    for array in arrays.values():
        if array.dtype.kind == "f" and not is_sensible(array):
            raise WireError("a model must hold finite numbers of a sensible size.")
    try:
        return read_model(learner, arrays, features, classes)
    except InputError as error:
        raise WireError(str(error)) from None
    except (KeyError, ValueError, TypeError, IndexError):
        raise WireError("a model does not have the form of its family.") from None


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
