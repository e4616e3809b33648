"""Fitting a model for every device.

Fitting is two runs of one method. The *trial* holds back a share of every device's rows
(`holdout`), and its models are compared on them with simple rivals: that is `worth`. The *final*
run uses all rows and gives the models that predict. Nothing is chosen by the rows held back,
except, with `fallback=True`, where to keep a device's own model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from persfl.devices import Devices
from persfl.errors import InputError, warn
from persfl.evaluation.rivals import own_fits
from persfl.evaluation.row_order import RowOrder
from persfl.fitting import notes
from persfl.fitting.cells import id_array
from persfl.fitting.date_columns import DateColumn, date_notes
from persfl.fitting.fitted import Fitted, assembled
from persfl.fitting.judging import Judged, Rivals, judge
from persfl.fitting.newcomers import newcomers
from persfl.fitting.quick_removal import quick_removal
from persfl.fitting.setup import FitSettings, Setup, chosen
from persfl.fitting.telling_columns import telling
from persfl.methods import Blend
from persfl.training.state import Keep, Pace, State
from persfl.trust import Trust
from persfl.types import Learner

if TYPE_CHECKING:
    from persfl.evaluation.verdicts import Worth
    from persfl.fitting.schema import TableSchema
    from persfl.methods import Method


def fit_fleet(
    rows: Devices,
    method: Method,
    learner: Learner,
    settings: FitSettings,
    schema: TableSchema,
    order: RowOrder | None = None,
    dates: Sequence[DateColumn] = (),
    *,
    keep: Keep | None = None,
) -> Fitted:
    """A model for every device, and what is known of its worth.

    `order` says what repeats in the rows; `dates` are columns that look like it, where it does not.

    >>> from persfl import Linear
    >>> from persfl.fitting import Labels, TableSchema
    >>> from persfl.methods import Blend
    >>> from persfl.sources import clustered_regression
    >>> rows = clustered_regression(n=12, rows=8, features=2, seed=0)
    >>> schema = TableSchema(Labels(), features=2)
    >>> found = fit_fleet(rows, Blend(), Linear(intercept=True), FitSettings(), schema)
    >>> found.ran, found.models.shape, found.worth.fleet().devices
    ('blend', (12, 3), 12)
    """
    setup = _begin(rows, method, learner, settings, schema, order)
    if len(rows) == 1:
        return _alone(setup, rows)
    order = order or RowOrder(ordered=settings.ordered)
    units = setup.units(rows)
    inside = units.inside(rows)
    seen = _seen_order(setup, inside, order)
    judged = judge(setup, rows, keep, order=order, seen=seen)
    fallback = _fallback(setup, rows, judged)
    public = setup.public(rows)
    state = method.run(setup.task(inside, public, order), keep=keep)
    found = replace(
        assembled(setup, rows, units, state),
        worth=judged.worth,
        fallback=fallback,
        depends=quick_removal(setup, rows, order, seen),
        public=public,
    )
    held = judged.worth is not None or not settings.holdout
    said_of = (
        notes.about(method) + notes.mixed(found),
        *notes.protected(method),
        *judged.notes,
        *(date_notes(dates, rows, setup.classes, order) if held else []),
        *notes.chosen_for_later(order, seen),
        *telling(rows, schema),
        *notes.halving(state, "the final run"),
        *notes.grown(found),
        *notes.kindred(found),
    )
    models = found.models
    if fallback.any():
        models = chosen(fallback, own_fits(learner, inside, setup.seed), models)
    return replace(found, models=models, notes=said_of, **newcomers(setup, rows))


def judge_fleet(
    rows: Devices,
    method: Method,
    learner: Learner,
    settings: FitSettings,
    schema: TableSchema,
    order: RowOrder | None = None,
    *,
    keep: Keep | None = None,
    rivals: Rivals | None = None,
) -> Worth | None:
    """Only the trial of a fit; None where there is nobody to compare with."""
    setup = _begin(rows, method, learner, settings, schema, order)
    if len(rows) == 1:
        return None
    order = order or RowOrder(ordered=settings.ordered)
    seen = _seen_order(setup, setup.units(rows).inside(rows), order)
    return judge(setup, rows, keep, rivals, order=order, seen=seen).worth


def _seen_order(setup: Setup, inside: Devices, order: RowOrder) -> RowOrder:
    """What models are chosen by. All rows tell it, and trials, which have fewer, go by it: they
    judge models that are chosen as those that predict.
    """
    method = setup.method
    if not isinstance(method, Blend):
        return order
    return method.seen_order(setup.task(inside, None, order))


def _begin(
    rows: Devices,
    method: Method,
    learner: Learner,
    settings: FitSettings,
    schema: TableSchema,
    order: RowOrder | None,
) -> Setup:
    """Checks and warnings, before anything is computed."""
    rows.check(quiet=True)
    settings.check(method, learner)
    keys = None if order is None else order.blocks
    if keys is not None and (keys == keys[0]).all():
        raise InputError(
            "blocks must have at least two different entries, to hide one and learn from the"
            " others. Leave it out."
        )
    setup = Setup(learner, settings, schema, method)
    if len(rows) > 1:
        notes.warn_thin(setup, rows)
        notes.warn_large(setup, rows)
    return setup


def _alone(setup: Setup, rows: Devices) -> Fitted:
    """One device: nobody to ask."""
    units = setup.units(rows)
    models = own_fits(setup.learner, units.inside(rows), setup.seed)
    nobody = State(0, models, Trust(1, np.arange(1)), Pace(float("nan")))
    found = assembled(setup, rows, units, nobody)
    one = replace(found, alone=True, notes=(notes.ALONE,))
    return replace(one, **newcomers(setup, rows))


def _fallback(setup: Setup, rows: Devices, judged: Judged) -> NDArray[np.bool_]:
    """(devices,) who keeps the model of own rows, by what was measured; it is noted."""
    nobody = np.zeros(len(rows), dtype=bool)
    if judged.worth is None:
        return nobody
    if setup.settings.fallback:
        alone: NDArray[np.bool_] = judged.worth.better_alone()
        names = id_array(rows.ids)[alone].tolist()
        judged.notes.extend(notes.own_models(len(rows), names))
        return alone
    if judged.worth.fleet().says == "hurts":
        judged.notes.append(notes.own_is_better(setup.method))
        warn(notes.own_is_better(setup.method))
    return nobody
