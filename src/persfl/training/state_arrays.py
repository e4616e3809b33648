"""A state of a run as plain arrays: what a file of it holds."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from persfl.errors import InputError
from persfl.learners.storage.family_table import models_from, models_to
from persfl.learners.storage.named_arrays import Arrays, prefixed, under
from persfl.training.state import Pace, State
from persfl.trust import Trust


def state_to(state: State) -> dict[str, Any]:
    """A state as the arrays of its file."""
    pace = state.pace
    arrays: dict[str, Any] = {
        "r": state.r,
        "losses": np.array(state.losses),
        "step_size": pace.step_size,
        "halved": np.array(pace.halved),
        "safe": pace.safe,
        "unlike": pace.unlike,
    }
    arrays |= prefixed("trust_", state.trust.to_arrays())
    arrays |= prefixed("kept_", state.kept or {})
    return arrays | models_to(state.models)


def state_from(arrays: Arrays) -> State:
    """The inverse of `state_to`, for arrays that somebody else may have written."""
    trust = Trust.from_arrays(under("trust_", arrays))
    losses = arrays["losses"]
    r = int(arrays["r"])
    step_size = float(arrays["step_size"])
    if (
        losses.dtype.kind != "f"
        or (losses.ndim != 2 and losses.size)
        or len(losses) > max(r, 0)
    ):
        raise InputError("there must be a loss for every round and target.")
    if r < 0 or not 0 < step_size < math.inf or arrays["halved"].ndim != 1:
        raise InputError("the number of rounds and the step size must be above 0.")
    halved = tuple(float(size) for size in arrays["halved"])
    pace = Pace(step_size, halved, bool(arrays["safe"]), bool(arrays["unlike"]))
    kept = under("kept_", arrays)
    return State(r, models_from(arrays), trust, pace, tuple(losses), kept or None)


def save_seconds() -> float:
    """How often a run is saved at most."""
    text = os.environ.get("PERSFL_SAVE_SECONDS", "5")
    try:
        return max(0.0, float(text))
    except ValueError:
        raise InputError(
            f"PERSFL_SAVE_SECONDS must be a number of seconds. Got {text!r}."
        ) from None
