"""The trial of a fit: rows are held back, the method runs on the others, and its models and their
simple rivals are judged by what was held back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from persfl.devices import Devices
from persfl.errors import InputError
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
from persfl.fitting.setup import Models, Setup
from persfl.proposers.gradient import GradientStep
from persfl.training.state import Keep, State, step_of
from persfl.traits import has_gradients
from persfl.types import Learner

if TYPE_CHECKING:
    from persfl.evaluation.verdicts import Worth

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
    order: RowOrder,
    seen: RowOrder,
) -> Judged:
    """Hold rows back, run the method on the others, and measure; as often as the settings say.

    Rows are held back by what was said of their `order`, models chosen by what was `seen` of it.
    `rivals` makes models beside those that are always compared (see `persfl.lab`). A device that
    would have no rows left to learn from is not there in that trial.
    """
    settings = setup.settings
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
        known = seen.at(fold.learn & there[rows.owner])
        stage = f"trial-{part}"
        trial, state = _trial(setup, learn, held, known, stage, keep, rivals)
        done.append(trial._replace(held=some_rows(rows, fold.judge)))
        if part == 0:
            said += notes.halving(state, "the trial run")
    if done:
        worth = worth_of_trials(done, setup.classes)
        if len(done) > 1:
            worth = _with_all_rows(setup, rows, worth, done, rivals, order, seen)
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
    seen: RowOrder,
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
            known = seen.at(~fewer)
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
