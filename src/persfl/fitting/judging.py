"""The trials of a fit: rows are held back, the method runs on the others, and errors are measured.

Errors fall with more rows to learn from, and final models have them all. What they fall by is told
by trials that learn from more rows, or, where every device holds back a single one, from fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from persfl.devices import Devices
from persfl.errors import InputError
from persfl.evaluation.row_order import Fold, RowOrder
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
    from persfl.types import Mask

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
    folds = _folds(setup, rows, order)
    if order.random and _are_of_new_classes(rows, folds, setup.classes):
        if settings.fallback:
            raise InputError(
                "fallback=True needs devices with two rows of a class, and most rows are the only"
                " ones of theirs. Leave it out."
            )
        return Judged(None, [notes.ONE_OF_A_CLASS])
    for part, fold in enumerate(folds):
        there = _with_rows(rows, fold.learn)
        if not fold.judge.any() or there.sum() < 2:
            break
        learn = taken(rows, there, fold.learn)
        held = taken(rows, there, fold.judge)
        known = seen.at(fold.learn & there[rows.owner])
        stage = f"trial-{part}"
        trial, state = _trial(setup, learn, held, known, stage, keep, rivals)
        moments = order.moments(rows, fold.judge)
        whole = some_rows(rows, fold.judge)
        done.append(trial._replace(held=whole, moments=moments))
        if part == 0:
            said += notes.halving(state, "the trial run")
    if done:
        worth = worth_of_trials(done, setup.classes, ahead=order.ordered)
        # a single trial says that runs are dear; what repeats in rows would tell of itself
        if len(done) > 1 and order.random:
            pairs = _Falls(setup, rows, done, rivals, seen).pairs()
            worth = with_falls(worth, rows, done[0].held.counts, pairs)
        return Judged(worth, said)
    if settings.fallback:
        raise InputError(
            "fallback=True needs devices with at least four rows, and no device has as many."
            " Leave it out."
        )
    nothing = notes.NOTHING_HELD if order.plain else notes.NOTHING_APART
    return Judged(None, [*said, nothing])


def _folds(setup: Setup, rows: Devices, order: RowOrder) -> list[Fold]:
    """What each trial learns from and holds back."""
    return [
        split_masks(
            rows,
            setup.settings.holdout,
            seed=setup.seed,
            part=part,
            classes=setup.classes,
            order=order,
        )
        for part in range(setup.trials(rows))
    ]


def _are_of_new_classes(rows: Devices, folds: Sequence[Fold], classes: int) -> bool:
    """Whether most rows held back are of classes that their device has no other row of. Rows to
    come are mostly of classes that it knows, and models do far better on those.
    """
    if not classes:
        return False
    group = rows.owner * classes + rows.y.astype(np.int64)
    new = 0
    held = 0
    for fold in folds:
        known = np.bincount(group[fold.learn], minlength=len(rows) * classes) > 0
        new += int((~known[group[fold.judge]]).sum())
        held += int(fold.judge.sum())
    return 2 * new > held


def _with_rows(rows: Devices, learn: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(devices,) who has rows that count among these."""
    weight = rows.weight * learn
    return np.asarray(np.bincount(rows.owner, weights=weight, minlength=len(rows)) > 0)


@dataclass(frozen=True, eq=False)
class _Falls:
    """What errors fall by with more rows, by pairs of trials that hold back more and fewer.

    The method runs once more; own models, which gain most by more rows and are cheap, are fitted
    for every pair.
    """

    setup: Setup
    rows: Devices
    trials: Sequence[Trial]
    rivals: Rivals | None
    seen: RowOrder

    def pairs(self) -> list[Smaller]:
        """Trials of half the rows held back beside each; of twice as many where most devices hold
        back a single row, of which there is no half.
        """
        counts = self.trials[0].held.counts
        several = (counts > 1).sum() * 2 >= (counts > 0).sum()
        return self._halves() if several else self._doubles()

    def _halves(self) -> list[Smaller]:
        pairs = []
        for part, trial in enumerate(self.trials):
            fewer = self._held(part, half=True)
            if fewer.sum() < len(trial.held.y):
                also = fewer[self._held(part)]
                pairs.append(Smaller(trial, self._run(fewer, part == 0), also))
        return pairs

    def _doubles(self) -> list[Smaller]:
        pairs = []
        for part in range(0, len(self.trials) - 1, 2):
            held = [self._held(part), self._held(part + 1)]
            both = held[0] | held[1]
            both &= _with_rows(self.rows, ~both)[self.rows.owner]
            if not both[held[1]].any():
                break
            trial = self._run(both, part == 0)
            for mine, smaller in zip(held, self.trials[part:], strict=False):
                if both[mine].all():
                    pairs.append(Smaller(trial, smaller, mine[both]))
        return pairs

    def _held(self, part: int, *, half: bool = False) -> Mask:
        """(rows,) what a trial holds back."""
        settings = self.setup.settings
        fold = split_masks(
            self.rows,
            settings.holdout,
            seed=self.setup.seed,
            part=part,
            classes=self.setup.classes,
            half=half,
        )
        return fold.judge

    def _run(self, hidden: Mask, everything: bool) -> Trial:
        """A trial that holds these rows back: of everything, or of own models alone."""
        setup = self.setup
        learn = some_rows(self.rows, ~hidden)
        held = some_rows(self.rows, hidden)
        if everything:
            known = self.seen.at(~hidden)
            stage = "trial-other-rows"
            return _trial(setup, learn, held, known, stage, None, self.rivals)[0]
        kind = setup.learner, setup.units(learn), setup.classes, setup.seed
        return own_trial(learn, held, *kind)


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
