"""Fitting as rows arrive: what is kept of them, and how the models do on rows not learned yet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from persfl.devices import Devices
from persfl.errors import InputError
from persfl.evaluation.rivals import own_fits
from persfl.fitting import notes
from persfl.fitting.fitted import assembled, newcomers
from persfl.fitting.setup import FitSettings, Models, Setup
from persfl.methods import METHODS, LocalTask, Method, Online
from persfl.methods.loop_plan import proposer_for
from persfl.training.state import Pace, State, step_of
from persfl.trust import Trust

if TYPE_CHECKING:
    from persfl.fitting.fitted import Fitted
    from persfl.fitting.schema import TableSchema
    from persfl.types import Array, Data, Learner


@dataclass(frozen=True, eq=False)
class Arrivals:
    """A fit that goes on: its result so far, the rows that are kept, and how each call began."""

    fitted: Fitted
    rows: Devices
    progress: pd.DataFrame
    """Errors on rows that had not been learned from yet, a row per call."""


def first_arrivals(
    rows: Devices,
    method: Method,
    learner: Learner,
    settings: FitSettings,
    schema: TableSchema,
) -> Arrivals:
    """The first rows; units, categories and classes are theirs from now on."""
    rows.check(quiet=True)
    settings.check(method, learner)
    setup = Setup(learner, settings, schema, method)
    if settings.window is not None:
        rows = joined(rows, None, settings.window)
    kind = "shared" if setup.kind == "centred" else setup.kind
    told = method.get_params().get("step_size", "auto")
    pace = Pace(step_of(told, learner, rows.features))
    blank = State(0, [], Trust(len(rows), np.arange(len(rows))), pace)
    found = replace(
        assembled(setup, rows, setup.units(rows, kind), blank),
        notes=(notes.about(method),),
        public=setup.public(rows, kind),
    )
    return Arrivals(_goes_on(setup, found, rows, old=0), rows, pd.DataFrame())


def more_arrivals(
    before: Arrivals, new: Devices, method: Method, settings: FitSettings
) -> Arrivals:
    """New rows have arrived: they are predicted, then learned from.

    Devices that join stand behind those that were there.
    """
    new.check(quiet=True)
    fitted = replace(before.fitted, settings=settings, method=method)
    setup = Setup(fitted.learner, settings, fitted.schema, method)
    progress = pd.DataFrame([_progress(fitted, new)])
    rows = joined(before.rows, new, settings.window)
    found = _goes_on(setup, fitted, rows, old=len(fitted.devices))
    known = pd.concat([before.progress, progress], ignore_index=True)
    return Arrivals(found, rows, known)


def _goes_on(setup: Setup, before: Fitted, rows: Devices, old: int) -> Fitted:
    """The fit after the rows that are kept now; `old` devices have models."""
    inside = before.units.inside(rows)
    said_of = before.notes
    if len(rows) == 1:
        models = own_fits(setup.learner, inside, setup.seed)
        pace = Pace(before.step_size)
        state = State(before.rounds, models, before.trust, pace, tuple(before.losses))
    else:
        task = setup.task(inside, before.public)
        method = online(setup.method)
        state = method.go_on(task, _start(before, task, method, old))
        if state.pace.halved:
            said_of = (*said_of, *notes.halving(state, f"round {state.r}"))
    found = assembled(setup, rows, before.units, state)
    return replace(found, notes=said_of, public=before.public, **newcomers(setup, rows))


def online(method: Method) -> Online:
    """The method, if it can go on as rows arrive.

    >>> from persfl.methods import Kin
    >>> online(Kin())
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: partial_fit goes by method='blend' or 'paper'. Got 'kin', which needs
    rows that stay: use fit.
    """
    if isinstance(method, Online):
        return method
    known = [name for name, kind in METHODS.items() if isinstance(kind(), Online)]
    raise InputError(
        f"partial_fit goes by method={' or '.join(map(repr, known))}. Got {method.name!r}, which"
        " needs rows that stay: use fit."
    )


def _start(before: Fitted, task: LocalTask, method: Method, old: int) -> State:
    """The state to go on from: known devices keep their models, new ones begin where everybody
    began.
    """
    pace = Pace(before.step_size)
    models: Models = before.models
    # a method without rounds of its own here makes its models anew
    if "online_rounds" in method.get_params():
        begun: Models = task.fleet(proposer_for(task, pace.step_size)).models
        models = begun
        if old > 1:
            both = [*before.models, *begun[old:]]
            models = np.stack(both) if isinstance(begun, np.ndarray) else both
    trust = before.trust.widened(task.n)
    losses = _known_losses(before, task.n)
    return State(before.rounds, models, trust, pace, tuple(losses))


def _known_losses(before: Fitted, n: int) -> Array:
    """(rounds, n) own losses so far; NaN for devices that were not there yet."""
    losses = np.full((len(before.losses), n), np.nan)
    losses[:, : before.losses.shape[1]] = before.losses
    return losses


def _progress(fitted: Fitted, rows: Devices) -> dict[str, float]:
    """Test, then train: how the models so far predict rows they have not seen."""
    place = fitted.places(list(rows.ids))
    owner = place[rows.owner]
    seen = owner >= 0
    missed = float("nan")
    if seen.any():
        response = fitted.answers(rows.X[seen], owner[seen])
        y = rows.y[seen]
        wrong = response.argmax(axis=1) != y if fitted.classes else (response - y) ** 2
        missed = float(wrong.mean())
    return {
        "rounds": fitted.rounds,
        "rows": int(seen.sum()),
        "new_devices": int((place < 0).sum()),
        "error": missed,
    }


def joined(old: Devices, new: Devices | None, window: int | None) -> Devices:
    """Old rows and new ones, each device's last `window`; devices that join stand behind those
    that were there.
    """
    parts: dict[object, list[Data]] = {}
    for devices in [old] if new is None else [old, new]:
        for i, name in enumerate(devices.ids):
            parts.setdefault(name, []).append(devices[i])
    last = slice(None) if window is None else slice(-window, None)
    kept = [
        (
            np.concatenate([piece.X for piece in pieces])[last],
            np.concatenate([piece.y for piece in pieces])[last],
            np.concatenate([piece.weight for piece in pieces])[last],
        )
        for pieces in parts.values()
    ]
    return Devices.of(kept, ids=list(parts), quiet=True)
