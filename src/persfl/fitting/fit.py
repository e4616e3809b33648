"""Fitting a model for every device.

Fitting is two runs of one method. The *trial* holds back a share of every device's rows
(`holdout`), and its models are compared on them with simple rivals: that is `worth`. The *final*
run uses all rows and gives the models that predict. Nothing is chosen by the rows held back,
except, with `fallback=True`, where to keep a device's own model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from persfl.devices import Devices
from persfl.evaluation.rivals import own_fits, pooled_fit
from persfl.evaluation.verdicts import Worth
from persfl.fitting import notes
from persfl.fitting.fitted import Fitted
from persfl.fitting.ids import id_array
from persfl.fitting.judgement import Judged, Rivals, judge
from persfl.fitting.schema import TableSchema
from persfl.fitting.settings import FitSettings
from persfl.fitting.setup import Setup, chosen
from persfl.fitting.warning import warn
from persfl.methods import Method
from persfl.training import Keep, Pace, State
from persfl.trust import Trust
from persfl.types import Learner, Model
from persfl.units import Units


def fit_fleet(
    rows: Devices,
    method: Method,
    learner: Learner,
    settings: FitSettings,
    schema: TableSchema,
    *,
    keep: Keep | None = None,
) -> Fitted:
    """A model for every device, and what is known of its worth.

    >>> from persfl import Linear
    >>> from persfl.fitting import Labels
    >>> from persfl.methods import Blend
    >>> from persfl.sources import clustered_regression
    >>> rows = clustered_regression(n=12, rows=8, features=2, seed=0)
    >>> schema = TableSchema(Labels(), features=2)
    >>> found = fit_fleet(rows, Blend(), Linear(intercept=True), FitSettings(), schema)
    >>> found.ran, found.models.shape, found.worth.fleet().devices
    ('blend', (12, 3), 12)
    """
    setup = _begin(rows, method, learner, settings, schema)
    if len(rows) == 1:
        return _alone(setup, rows)
    judged = judge(setup, rows, keep)
    fallback = _fallback(setup, rows, judged)
    units = setup.units(rows)
    public = setup.public(rows)
    inside = units.inside(rows)
    state = method.run(setup.task(inside, public), keep=keep)
    found = replace(
        assembled(setup, rows, units, state),
        worth=judged.worth,
        fallback=fallback,
        public=public,
    )
    said_of = (
        notes.about(method) + notes.mixed(found),
        *judged.notes,
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
    *,
    keep: Keep | None = None,
    rivals: Rivals | None = None,
) -> Worth | None:
    """Only the trial of a fit; None where there is nobody to compare with."""
    setup = _begin(rows, method, learner, settings, schema)
    return None if len(rows) == 1 else judge(setup, rows, keep, rivals).worth


def _begin(
    rows: Devices,
    method: Method,
    learner: Learner,
    settings: FitSettings,
    schema: TableSchema,
) -> Setup:
    """Checks and warnings, before anything is computed."""
    rows.check(quiet=True)
    settings.check(method, learner)
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
        judged.notes.append(notes.OWN_IS_BETTER)
        warn(notes.OWN_IS_BETTER)
    return nobody


def assembled(setup: Setup, rows: Devices, units: Units, state: State) -> Fitted:
    """What a run leaves, as a value."""
    n = len(rows)
    return Fitted(
        devices=id_array(rows.ids),
        rows=rows.counts.copy(),
        schema=setup.schema,
        settings=setup.settings,
        method=setup.method,
        learner=setup.learner,
        units=units,
        models=state.models,
        trust=state.trust,
        losses=np.stack(state.losses) if state.losses else np.empty((0, n)),
        step_size=state.pace.step_size,
        rounds=state.r,
        fallback=np.zeros(n, dtype=bool),
    )


class Newcomers(TypedDict):
    """One model for devices that were not there, and its units."""

    pooled: Model
    pooled_units: Units | None


def newcomers(setup: Setup, rows: Devices) -> Newcomers:
    """A model for devices that were not there; it sees all rows."""
    if setup.settings.unseen != "pooled":
        return {"pooled": None, "pooled_units": None}
    units = setup.units(rows, "shared" if setup.kind == "centred" else setup.kind)
    model = pooled_fit(setup.learner, units.inside(rows), setup.seed)
    return {"pooled": model, "pooled_units": units}
