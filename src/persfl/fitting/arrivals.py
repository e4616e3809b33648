"""Fitting as rows arrive: what is kept of them, and how the models do on rows not learned yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from persfl.devices import Devices, offsets
from persfl.errors import InputError
from persfl.evaluation.rivals import own_fits
from persfl.evaluation.row_order import RowOrder
from persfl.fitting import notes
from persfl.fitting.date_columns import DateColumn, date_notes
from persfl.fitting.fitted import assembled
from persfl.fitting.newcomers import newcomers
from persfl.fitting.setup import FitSettings, Models, Setup
from persfl.methods import METHODS, LocalTask, Method, Online
from persfl.methods.loop_plan import proposer_for
from persfl.training.state import Pace, State, step_of
from persfl.trust import Trust

if TYPE_CHECKING:
    from persfl.fitting.fitted import Fitted
    from persfl.fitting.schema import TableSchema
    from persfl.types import Array, Learner


@dataclass(frozen=True, eq=False)
class Arrivals:
    """A fit that goes on: its result so far, the rows that are kept, and how each call began."""

    fitted: Fitted
    rows: Devices
    order: RowOrder
    """What repeats in the rows that are kept."""
    progress: pd.DataFrame
    """Errors on rows that had not been learned from yet, a row per call."""


def first_arrivals(
    rows: Devices,
    method: Method,
    learner: Learner,
    settings: FitSettings,
    schema: TableSchema,
    order: RowOrder | None = None,
    dates: Sequence[DateColumn] = (),
) -> Arrivals:
    """The first rows; units, categories and classes are theirs from now on."""
    rows.check(quiet=True)
    settings.check(method, learner)
    setup = Setup(learner, settings, schema, method)
    order = order or RowOrder(ordered=settings.ordered)
    rows, order = joined(rows, order, None, None, settings.window)
    kind = "shared" if setup.kind == "centred" else setup.kind
    told = method.get_params().get("step_size", "auto")
    pace = Pace(step_of(told, learner, rows.features))
    blank = State(0, [], Trust(len(rows), np.arange(len(rows))), pace)
    found = replace(
        assembled(setup, rows, setup.units(rows, kind), blank),
        notes=(notes.about(method), *date_notes(dates, rows, setup.classes)),
        public=setup.public(rows, kind),
    )
    fitted = _goes_on(setup, found, rows, order, old=0)
    return Arrivals(fitted, rows, order, pd.DataFrame())


def more_arrivals(
    before: Arrivals,
    new: Devices,
    method: Method,
    settings: FitSettings,
    arrived: RowOrder | None = None,
) -> Arrivals:
    """New rows have arrived: they are predicted, then learned from.

    Devices that join stand behind those that were there.
    """
    new.check(quiet=True)
    fitted = replace(before.fitted, settings=settings, method=method)
    setup = Setup(fitted.learner, settings, fitted.schema, method)
    progress = pd.DataFrame([_progress(fitted, new)])
    arrived = arrived or RowOrder(ordered=settings.ordered)
    rows, order = joined(before.rows, before.order, new, arrived, settings.window)
    found = _goes_on(setup, fitted, rows, order, old=len(fitted.devices))
    known = pd.concat([before.progress, progress], ignore_index=True)
    return Arrivals(found, rows, order, known)


def _goes_on(
    setup: Setup, before: Fitted, rows: Devices, order: RowOrder, old: int
) -> Fitted:
    """The fit after the rows that are kept now; `old` devices have models."""
    inside = before.units.inside(rows)
    said_of = before.notes
    if len(rows) == 1:
        models = own_fits(setup.learner, inside, setup.seed)
        pace = Pace(before.step_size)
        state = State(before.rounds, models, before.trust, pace, tuple(before.losses))
    else:
        task = setup.task(inside, before.public, order)
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


def joined(
    old: Devices,
    known: RowOrder,
    new: Devices | None,
    arrived: RowOrder | None,
    window: int | None,
) -> tuple[Devices, RowOrder]:
    """Old rows and new ones, each device's last `window`, in the order of time where that is known;
    devices that join stand behind those that were there.
    """
    ids = list(old.ids)
    parts = [old]
    owner = old.owner
    order = known
    if new is not None and arrived is not None:
        place = {name: i for i, name in enumerate(ids)}
        ids += [name for name in new.ids if name not in place]
        place = {name: i for i, name in enumerate(ids)}
        theirs = np.array([place[name] for name in new.ids], dtype=np.int64)
        owner = np.concatenate([owner, theirs[new.owner]])
        parts.append(new)
        order = _both(known, arrived)
    at = np.lexsort((owner,) if order.time is None else (order.time, owner))
    counts = np.bincount(owner, minlength=len(ids))
    if window is not None:
        last = np.cumsum(counts)[owner[at]] - np.arange(len(at))
        at = at[last <= window]
        counts = np.minimum(counts, window)
    X, y, weight = (
        np.concatenate([getattr(part, name) for part in parts])[at]
        for name in ("X", "y", "weight")
    )
    rows = Devices(X, y, weight, offsets(counts), ids)
    rows.check(quiet=True)
    return rows, order.at(at)


def _both(known: RowOrder, arrived: RowOrder) -> RowOrder:
    """What repeats in old rows and new ones."""
    blocks = _one_array("blocks", known.blocks, arrived.blocks)
    time = _one_array("time", known.time, arrived.time)
    if known.clock != arrived.clock:
        raise InputError(
            f"time must hold the same in every call of partial_fit. Got {arrived.clock} after"
            f" {known.clock}."
        )
    return replace(arrived, blocks=blocks, time=time)


def _one_array(word: str, before: Any, now: Any) -> Any:
    if before is None and now is None:
        return None
    if before is None or now is None:
        raise InputError(
            f"{word} must be said in every call of partial_fit, or in none. Start anew with a new"
            " estimator."
        )
    return np.concatenate([before, now])
