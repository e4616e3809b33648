"""What methods without rounds have in common: a fit, and nobody asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from persfl.methods.loop_plan import loop_plan
from persfl.seeds import stream
from persfl.training.state import Keep, Pace, State
from persfl.trust import Trust
from persfl.types import Model

if TYPE_CHECKING:
    from persfl.devices import Devices
    from persfl.methods.protocol import Task
    from persfl.types import IntArray

FOLDS = 5  # that settings are chosen by


def at_once(
    task: Task,
    models: Any,
    *,
    stage: str,
    keep: Keep | None,
    notes: Mapping[str, Any] | None = None,
) -> State:
    """The state of a method without rounds: models, and nobody asked; `notes` are kept with it."""
    trust = Trust(task.n, np.arange(task.n), notes=dict(notes or {}))
    state = State(0, models, trust, Pace(1.0))
    if keep is not None:
        keep.after(stage, loop_plan(task, 0), state, None)
    return state


def for_everybody(model: Model, n: int) -> Any:
    """One model, for every device."""
    if isinstance(model, np.ndarray):
        return np.repeat(model[None], n, axis=0)
    return [model] * n


def row_folds(rows: Devices, seed: int) -> IntArray:
    """(rows,) a fold for each row; a device's rows are dealt to folds evenly, and so are the rows
    that are the only ones of their devices.
    """
    draw = stream(seed, "folds").generator()
    order = np.lexsort([draw.random(len(rows.X)), rows.owner])
    fold = np.empty(len(rows.X), dtype=np.int64)
    fold[order] = (np.arange(len(order)) - rows.start[rows.owner[order]]) % FOLDS
    lone = np.flatnonzero(rows.counts[rows.owner] == 1)
    fold[lone] = draw.permutation(len(lone)) % FOLDS
    return fold
