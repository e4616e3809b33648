"""Blend of rows that are in this process; as a stage of a fit it can be kept and resumed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from persfl.devices import Devices
from persfl.errors import InputError
from persfl.evaluation.row_order import Fold, RowOrder, hidden_folds
from persfl.evaluation.split import taken
from persfl.learners.linear import Linear
from persfl.methods.blend import blend_settings as chosen
from persfl.methods.blend.algorithm import blend_over
from persfl.methods.blend.blend_settings import USUAL, BlendSettings
from persfl.methods.blend.folds import Folding, HiddenFolding
from persfl.methods.blend.mixture import BlendResult
from persfl.methods.blend.offers import offers_for
from persfl.methods.blend.site_in_process import LocalSite
from persfl.methods.mixed.linear_rule import linear_blend
from persfl.methods.mixed.linear_stage import sums_result
from persfl.training.state import Forget, Keep, Pace, Plan, State, resumable
from persfl.trust import Trust
from persfl.types import Array, IntArray, Learner


def blend(
    rows: Devices,
    learner: Learner,
    public: Array | None = None,
    *,
    seed: int = 0,
    budget: int = 640,
    ordered: bool = False,
    classes: int = 0,
    n_jobs: int | None = 1,
) -> BlendResult:
    """A model for every device; each asks others for at most `budget` refits (see `budget`).

    Linear models are mixed into one. Of others, `models[i]` is a list of (share, model). Models
    that are only refitted, such as trees, need `public` points. Linear models under squared loss
    ask nobody for refits: they come from sums over rows (see `persfl.methods.mixed`), here without
    trees beside them.

    >>> from persfl import Linear, Tree
    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(
    ...     n=40, clusters=2, rows=12, features=5, noise=0.5, seed=0
    ... )
    >>> found = blend(devices, Linear(intercept=True))
    >>> found.models.shape, bool(found.shares.sum(axis=1).round(6).max() == 1)
    ((40, 6), True)
    >>> trees = blend(devices, Tree(2), devices.X[:20], budget=1)
    >>> round(sum(share for share, _ in trees.models[0]), 6)
    1.0
    """
    if isinstance(learner, Linear) and learner.kind == "squared":
        level = learner.intercept
        order = RowOrder(ordered=ordered)
        found = linear_blend(rows, level=level, seed=seed, order=order, trees=False)
        return sums_result(found, level)
    site = local_site(
        rows,
        learner,
        public,
        seed=seed,
        ordered=ordered,
        classes=classes,
        n_jobs=n_jobs,
    )
    return blend_over(site, budget=budget)


def local_site(
    rows: Devices,
    learner: Learner,
    public: Array | None = None,
    *,
    seed: int = 0,
    ordered: bool = False,
    classes: int = 0,
    n_jobs: int | None = 1,
    compute: str | None = None,
    together: bool = True,
    judges: bool = True,
    settings: BlendSettings | None = None,
) -> LocalSite:
    """Devices whose rows are in this process; `together=False` never puts rows of two devices in
    one place, as a federation cannot. With `judges=False` there are no folds.
    """
    settings = settings or chosen.USUAL
    family = offers_for(
        learner, rows.features, classes=classes, public=public, settings=settings
    )
    folding = Folding(classes, ordered, seed, settings)
    if not judges:
        folding = HiddenFolding(classes, ordered, seed, settings)
    return LocalSite(
        rows, family, folding, n_jobs=n_jobs, compute=compute, together=together
    )


def hidden_sites(
    rows: Devices,
    learner: Learner,
    public: Array | None,
    folds: Sequence[Fold],
    *,
    seed: int = 0,
    classes: int = 0,
    n_jobs: int | None = 1,
    compute: str | None = None,
    settings: BlendSettings | None = None,
) -> Iterator[tuple[IntArray, LocalSite]]:
    """Who is there, and where they are asked, once without what each fold hides at all of them."""
    settings = settings or chosen.USUAL
    for learn, judge in folds:
        weight = rows.weight * learn
        known = np.bincount(rows.owner, weights=weight, minlength=len(rows)) > 0
        at = known[rows.owner]
        there = taken(rows, known)
        both = _weighed(there, there.weight * (learn | judge)[at])
        past = _weighed(there, there.weight * learn[at])
        family = offers_for(
            learner, rows.features, classes=classes, public=public, settings=settings
        )
        folding = HiddenFolding(
            classes, False, seed, settings, start=there.start, judge=judge[at]
        )
        site = LocalSite(
            both, family, folding, n_jobs=n_jobs, compute=compute, answered=past
        )
        yield np.flatnonzero(known), site


def _weighed(rows: Devices, weight: Array) -> Devices:
    return Devices(rows.X, rows.y, weight, rows.start, rows.ids)


def _rounds_of(trust: Trust) -> int:
    """How many rounds a blend that was kept has in all, by its notes; -1 where it says nothing."""
    notes = trust.notes
    if "mix_rounds" not in notes:
        return -1
    rounds = notes["mix_rounds"]
    nothing = np.zeros(0)
    mix = notes.get("mix", nothing)
    names = notes.get("mix_names", nothing)
    if (
        (names.ndim, names.dtype.kind, mix.dtype.kind) != (1, "U", "f")
        or mix.shape != (trust.n, len(names))
        or (rounds.ndim, rounds.dtype.kind) != (0, "i")
    ):
        raise InputError(
            "the run that was kept is not of a blend: its notes are of another kind. Use another"
            " folder."
        )
    return int(rounds)


def blend_stage(
    devices: Devices,
    plan: Plan,
    *,
    budget: int,
    order: RowOrder,
    classes: int,
    public: Array | None = None,
    stage: str = "final",
    keep: Keep | None = None,
) -> State:
    """As `persfl.training.train`. A stage that was cut begins anew and ends the same, since
    nothing is drawn but by the seed.
    """
    keep = keep or Forget()
    state = resumable(keep.last(stage), devices, plan.learner)
    if state is not None and state.r == _rounds_of(state.trust):
        return state
    pace = Pace(plan.step_size)
    keep.after(
        stage, plan, State(0, None, Trust(len(devices), devices.start[:0]), pace), None
    )
    parts = USUAL.class_folds if classes and not order.ordered else USUAL.folds
    folds = [] if order.plain else hidden_folds(devices, order, parts, seed=plan.seed)
    site = local_site(
        devices,
        plan.learner,
        public,
        seed=plan.seed,
        ordered=order.ordered,
        classes=classes,
        n_jobs=plan.n_jobs,
        compute=plan.compute,
        judges=not folds,
    )
    hidden = None
    if folds:
        hidden = hidden_sites(
            devices,
            plan.learner,
            public,
            folds,
            seed=plan.seed,
            classes=classes,
            n_jobs=plan.n_jobs,
            compute=plan.compute,
        )
    found = blend_over(site, budget=budget, hidden=hidden)
    losses = tuple(round_.loss for round_ in found.rounds)
    ends = replace(plan, rounds=len(found.rounds))
    for round_ in found.rounds:
        state = State(
            round_.r + 1, found.models, round_.trust, pace, losses[: round_.r + 1]
        )
        keep.after(stage, ends, state, round_)
    assert state is not None  # there is at least one round
    return state
