"""Trial runs that hold rows back, to compare models on them with those of simple rivals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from persfl.devices import Devices
from persfl.errors import InputError
from persfl.evaluation.split import split
from persfl.evaluation.trials import Trial, run_trial, worth_of_trials
from persfl.evaluation.verdicts import Worth
from persfl.fitting import notes
from persfl.fitting.setup import Models, Setup
from persfl.proposers import GradientStep
from persfl.training import Keep, State, step_of
from persfl.traits import has_gradients
from persfl.types import Learner

# Models of more rivals, by name: of rows in units, a learner, a step size, rounds and a seed.
Rivals = Callable[[Devices, Learner, float, int, int], Mapping[str, Models]]


class Judged(NamedTuple):
    """Errors on rows held back, None where no device has rows to spare; and what to know of it."""

    worth: Worth | None
    notes: list[str]


def judge(
    setup: Setup, rows: Devices, keep: Keep | None = None, rivals: Rivals | None = None
) -> Judged:
    """Hold rows back, run the method on the others, and measure; as often as the settings say.

    `rivals` makes models beside those that are always compared (see `persfl.lab`).
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
        learn, held = split(
            rows,
            settings.holdout,
            seed=setup.seed,
            part=part,
            classes=setup.classes,
            ordered=settings.ordered,
        )
        if not len(held.X):
            break
        trial, state = _trial(setup, learn, held, f"trial-{part}", keep, rivals)
        done.append(trial)
        if part == 0:
            said += notes.halving(state, "the trial run")
    if done:
        return Judged(worth_of_trials(done, setup.classes), said)
    if settings.fallback:
        raise InputError(
            "fallback=True needs devices with at least four rows, and no device has as many."
            " Leave it out."
        )
    return Judged(None, [*said, notes.NOTHING_HELD])


def _trial(
    setup: Setup,
    learn: Devices,
    held: Devices,
    stage: str,
    keep: Keep | None,
    rivals: Rivals | None,
) -> tuple[Trial, State]:
    """One run on the rows that are left, measured on those that are held back."""
    units = setup.units(learn)
    public = setup.public(learn)
    inside = units.inside(learn)
    learner = setup.learner
    state = setup.method.run(setup.task(inside, public), stage=stage, keep=keep)
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
