"""Where models begin: zeros, the target's own fit, or models handed in."""

from __future__ import annotations

from typing import Any

import numpy as np

from persfl.errors import InputError
from persfl.seeds import Stream
from persfl.types import Data, Learner


def starting_model(learner: Learner, data: Data, stream: Stream, start: Any) -> Any:
    """One model (or a batch of them, where the data has leading axes).

    `start` is None (the learner's own `init`), "zeros" or "own".
    """
    if start is None:
        return learner.init(data, stream)
    if start == "own":
        return learner.fit(data, stream)
    if start == "zeros":
        return learner.zeros(data) if hasattr(learner, "zeros") else learner.init(data, stream)
    raise InputError(f"start must be None, 'zeros', 'own', a model, or a list of one model per target. Got {start!r}.")


def handed_in(start: Any, learners: list[Any], features: int) -> list[Any] | None:
    """One checked model per target, or None where `start` names a rule instead."""
    if start is None or isinstance(start, str):
        return None
    count = len(learners)
    if isinstance(start, (list, tuple)) or (isinstance(start, np.ndarray) and start.ndim == 2):
        if len(start) != count:
            raise InputError(f"start must hold one model per target ({count}). Got {len(start)}.")
        models = list(start)
    else:
        models = [start] * count
    return [learner.check(model, features) for learner, model in zip(learners, models, strict=True)]
