"""Fitting as rows arrive: what is kept of them, and how the models do on rows not learned yet."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from persfl.checks import whole
from persfl.devices import Devices
from persfl.evaluation.rivals import own_fits
from persfl.fitting import notes
from persfl.fitting.fit import assembled, newcomers
from persfl.fitting.fitted import Fitted
from persfl.fitting.method_choice import method_of, said
from persfl.fitting.schema import TableSchema
from persfl.fitting.settings import FitSettings
from persfl.fitting.setup import Models, Setup
from persfl.fleets import ArrayFleet
from persfl.methods.blend import blend_stage as blended
from persfl.training import Pace, Plan, State, step_of, train
from persfl.trust import Trust
from persfl.types import Array, Data, Learner


@dataclass(frozen=True, eq=False)
class Arrivals:
    """A fit that goes on: its result so far, the rows that are kept, and how each call began."""

    fitted: Fitted
    rows: Devices
    progress: pd.DataFrame
    """Errors on rows that had not been learned from yet, a row per call."""


def first_arrivals(
    rows: Devices, learner: Learner, settings: FitSettings, schema: TableSchema
) -> Arrivals:
    """The first rows; units, categories and classes are theirs from now on."""
    rows.check(quiet=True)
    settings.check(len(rows))
    method = method_of(settings, online=True)
    setup = Setup(learner, settings, schema, method.name)
    if settings.window is not None:
        rows = joined(rows, None, settings.window)
    kind = "shared" if setup.kind == "centred" else setup.kind
    pace = Pace(step_of(settings.step_size, learner, rows.features))
    blank = State(0, [], Trust(len(rows), np.arange(len(rows))), pace)
    found = replace(
        assembled(setup, rows, setup.units(rows, kind), blank),
        notes=(said(method),),
        public=setup.public(rows, kind),
    )
    return Arrivals(_goes_on(setup, found, rows, old=0), rows, pd.DataFrame())


def more_arrivals(before: Arrivals, new: Devices, settings: FitSettings) -> Arrivals:
    """New rows have arrived: they are predicted, then learned from.

    Devices that join stand behind those that were there.
    """
    new.check(quiet=True)
    fitted = replace(before.fitted, settings=settings)
    setup = Setup(fitted.learner, settings, fitted.schema, fitted.method)
    progress = pd.DataFrame([_progress(fitted, new)])
    rows = joined(before.rows, new, settings.window)
    found = _goes_on(setup, fitted, rows, old=len(fitted.devices))
    known = pd.concat([before.progress, progress], ignore_index=True)
    return Arrivals(found, rows, known)


def _goes_on(setup: Setup, before: Fitted, rows: Devices, old: int) -> Fitted:
    """The fit after some more rounds on the rows that are kept; `old` devices have models."""
    inside = before.units.inside(rows)
    if len(rows) == 1:
        models = own_fits(setup.learner, inside, setup.seed)
        pace = Pace(before.step_size)
        state = State(before.rounds, models, before.trust, pace, tuple(before.losses))
        said_of = before.notes
    else:
        added = whole("online_rounds", setup.settings.online_rounds, least=0)
        plan = setup.plan(rows, before.public, rounds=before.rounds + added)
        known = _known_losses(before, len(rows))
        if setup.method == "blend":
            state = _blend_anew(setup, before, inside, plan, known)
            said_of = before.notes
        else:
            state = train(inside, plan, start=_start(before, inside, plan, old, known))
            said_of = (*before.notes, *_halved(state))
    found = assembled(setup, rows, before.units, state)
    return replace(found, notes=said_of, public=before.public, **newcomers(setup, rows))


def _halved(state: State) -> list[str]:
    return notes.halving(state, f"round {state.r}") if state.pace.halved else []


def _blend_anew(
    setup: Setup, before: Fitted, inside: Devices, plan: Plan, known: Array
) -> State:
    """Models of the rows that are kept now.

    Rounds and losses are those of all calls so far, trust that of this one.
    """
    state = blended(
        inside,
        plan,
        budget=setup.settings.budget,
        ordered=True,
        classes=setup.classes,
        public=before.public,
    )
    return replace(
        state,
        r=before.rounds + state.r,
        losses=(*known, *state.losses),
        pace=Pace(before.step_size),
    )


def _start(
    before: Fitted, inside: Devices, plan: Plan, old: int, known: Array
) -> State:
    """The state to go on from: known devices keep their models, new ones begin where everybody
    began.
    """
    step = before.step_size if np.isfinite(before.step_size) else plan.step_size
    begun: Models = ArrayFleet(
        inside, learner=plan.learner, proposer=plan.proposer(step), seed=plan.seed
    ).models
    if old > 1:
        both = [*before.models, *begun[old:]]
        begun = np.stack(both) if isinstance(begun, np.ndarray) else both
    trust = before.trust.widened(len(inside))
    return State(before.rounds, begun, trust, Pace(step), tuple(known))


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
        response, y = fitted.answers(rows.X[seen], owner[seen]), rows.y[seen]
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
