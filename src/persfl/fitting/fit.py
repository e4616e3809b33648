"""Fitting a model for every device.

Fitting is two runs of one method. The *trial* holds back a share of every device's rows
(`holdout`), and its models are compared on them with simple rivals: that is `worth`. The *final*
run uses all rows and gives the models that predict. Nothing is chosen by the rows held back,
except, with `fallback=True`, where to keep a device's own model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from persfl.devices import Devices
from persfl.errors import InputError, warn
from persfl.evaluation.rivals import own_fits
from persfl.evaluation.row_order import RowOrder
from persfl.evaluation.split import some_rows, split_masks, taken
from persfl.evaluation.trials import (
    Smaller,
    Trial,
    own_trial,
    run_trial,
    with_falls,
    worth_of_trials,
)
from persfl.fitting import notes
from persfl.fitting.cells import id_array
from persfl.fitting.date_columns import DateColumn, date_notes
from persfl.fitting.fitted import Fitted, assembled, newcomers
from persfl.fitting.quick_removal import quick_removal
from persfl.fitting.setup import FitSettings, Models, Setup, chosen
from persfl.proposers.gradient import GradientStep
from persfl.training.state import Keep, Pace, State, step_of
from persfl.traits import has_gradients
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
    judged = judge(setup, rows, keep, order=order)
    fallback = _fallback(setup, rows, judged)
    units = setup.units(rows)
    public = setup.public(rows)
    inside = units.inside(rows)
    state = method.run(setup.task(inside, public, order), keep=keep)
    found = replace(
        assembled(setup, rows, units, state),
        worth=judged.worth,
        fallback=fallback,
        depends=quick_removal(setup, rows, order),
        public=public,
    )
    said_of = (
        notes.about(method) + notes.mixed(found),
        *notes.protected(method),
        *judged.notes,
        *date_notes(dates, rows, setup.classes, order),
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
    return judge(setup, rows, keep, rivals, order=order).worth


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


# The trial

# Models of more rivals, by name: of rows in units, a learner, a step size, rounds and a seed.
Rivals = Callable[[Devices, Learner, float, int, int], Mapping[str, Models]]


class Judged(NamedTuple):
    """Errors on rows held back, None where no device has rows to spare; and what to know of it."""

    worth: Worth | None
    notes: list[str]


def judge(
    setup: Setup,
    rows: Devices,
    keep: Keep | None = None,
    rivals: Rivals | None = None,
    *,
    order: RowOrder | None = None,
) -> Judged:
    """Hold rows back, run the method on the others, and measure; as often as the settings say.

    `rivals` makes models beside those that are always compared (see `persfl.lab`). A device that
    would have no rows left to learn from is not there in that trial.
    """
    settings = setup.settings
    order = order or RowOrder(ordered=settings.ordered)
    if not settings.holdout > 0:
        if settings.fallback:
            raise InputError(
                "fallback=True needs rows to judge by. Use holdout above 0, for example 0.25."
            )
        return Judged(None, [])
    done = []
    said = []
    for part in range(setup.trials(rows)):
        fold = split_masks(
            rows,
            settings.holdout,
            seed=setup.seed,
            part=part,
            classes=setup.classes,
            order=order,
        )
        there = _with_rows(rows, fold.learn)
        if not fold.judge.any() or there.sum() < 2:
            break
        learn = taken(rows, there, fold.learn)
        held = taken(rows, there, fold.judge)
        known = order.at(fold.learn & there[rows.owner])
        stage = f"trial-{part}"
        trial, state = _trial(setup, learn, held, known, stage, keep, rivals)
        done.append(trial._replace(held=some_rows(rows, fold.judge)))
        if part == 0:
            said += notes.halving(state, "the trial run")
    if done:
        worth = worth_of_trials(done, setup.classes)
        if len(done) > 1:
            worth = _with_all_rows(setup, rows, worth, done, rivals, order)
        return Judged(worth, said)
    if settings.fallback:
        raise InputError(
            "fallback=True needs devices with at least four rows, and no device has as many."
            " Leave it out."
        )
    nothing = notes.NOTHING_HELD if order.plain else notes.NOTHING_APART
    return Judged(None, [*said, nothing])


def _with_rows(rows: Devices, learn: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(devices,) who has rows that count among these."""
    weight = rows.weight * learn
    return np.asarray(np.bincount(rows.owner, weights=weight, minlength=len(rows)) > 0)


def _with_all_rows(
    setup: Setup,
    rows: Devices,
    worth: Worth,
    trials: Sequence[Trial],
    rivals: Rivals | None,
    order: RowOrder,
) -> Worth:
    """What errors will be with all rows to learn from, by trials that hold half as many back.

    The method runs once more; own models, which gain most by more rows and are cheap, are fitted
    for every trial. Where there is but one trial, since runs are dear, it is left out, and where
    rows have keys or a clock, since fewer of them are no part of the others.
    """
    if not order.plain:
        return worth
    pairs = []
    for part, trial in enumerate(trials):
        more, fewer = (
            split_masks(
                rows,
                setup.settings.holdout,
                seed=setup.seed,
                part=part,
                classes=setup.classes,
                order=order,
                half=half,
            ).judge
            for half in (False, True)
        )
        held = some_rows(rows, fewer)
        if not (held.counts < trial.held.counts).any():
            continue
        learn = some_rows(rows, ~fewer)
        if part == 0:
            known = order.at(~fewer)
            stage = "trial-more-rows"
            smaller, _ = _trial(setup, learn, held, known, stage, None, rivals)
        else:
            kind = setup.learner, setup.units(learn), setup.classes, setup.seed
            smaller = own_trial(learn, held, *kind)
        pairs.append(Smaller(trial, smaller, fewer[more]))
    return with_falls(worth, rows, pairs) if pairs else worth


def _trial(
    setup: Setup,
    learn: Devices,
    held: Devices,
    order: RowOrder,
    stage: str,
    keep: Keep | None,
    rivals: Rivals | None,
) -> tuple[Trial, State]:
    """One run on the rows that are left, measured on those that are held back."""
    units = setup.units(learn)
    public = setup.public(learn)
    inside = units.inside(learn)
    learner = setup.learner
    state = setup.method.run(setup.task(inside, public, order), stage=stage, keep=keep)
    # a run without rounds says nothing about steps
    usual = step_of("auto", learner, learn.features)
    step = state.pace.step_size if state.losses else usual
    rounds = setup.rounds()
    trial = run_trial(
        learn,
        held,
        learner=learner,
        units=units,
        models=state.models,
        classes=setup.classes,
        public=public,
        steps=GradientStep(step, steps=rounds) if has_gradients(learner) else None,
        seed=setup.seed,
        more=rivals(inside, learner, step, rounds, setup.seed) if rivals else None,
    )
    return trial, state
