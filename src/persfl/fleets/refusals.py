"""What a fleet refuses, and where a run cannot go on: one sentence each."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from persfl.errors import CannotMix, Diverged, InputError
from persfl.traits import is_learner, is_proposer
from persfl.types import Data, LabelCheck, Learner

if TYPE_CHECKING:
    from persfl.devices import Devices

_MOST_JOBS = 1_024  # which are started whether they have work or not


def check_labels(learners: Sequence[Learner], rows: Devices) -> None:
    """Stop where a loss cannot take the labels."""
    for learner in {id(learner): learner for learner in learners}.values():
        if not isinstance(learner, LabelCheck):
            continue
        trouble = learner.check_labels(Data(rows.X, rows.y, rows.weight))
        if trouble:
            at = next(i for i in range(len(rows)) if learner.check_labels(rows[i]))
            raise InputError(f"labels of device {rows.ids[at]!r} do not fit: {trouble}")


def check_fleet_parts(
    learners: Sequence[object], proposer: object, local: object = None
) -> None:
    """Stop where something else stands in a learner's or a proposer's place."""
    from sklearn.base import BaseEstimator

    for learner in learners:
        if not is_learner(learner):
            wrap = (
                f"Wrap it: Estimator({learner!r})."
                if isinstance(learner, BaseEstimator)
                else "Use Linear(), Tree() or Estimator(...)."
            )
            raise InputError(
                f"learner must be a persfl learner. Got {learner!r}. {wrap}"
            )
    for name, part in (("proposer", proposer), ("local", local)):
        if name == "local" and part is None:
            continue
        if not is_proposer(part):
            raise InputError(
                f"{name} must be GradientStep(...), Refit(...) or one of your own. Got {part!r}."
            )


def diverged(r: int, device: Hashable, why: str) -> Diverged:
    """The one sentence for a run in which a target has no finite answer left."""
    return Diverged(
        f"round {r}: no answer gives device {device!r} a finite loss; {why}. The models of the last"
        " good round are kept.",
        round=r,
        device=device,
    )


def no_models_yet() -> InputError:
    """A fleet on a stream was asked for models before any row arrived."""
    return InputError(
        "a fleet on a stream has models once its first round has been observed. Run a round first."
    )


def cannot_share(learner: Learner | Sequence[Learner]) -> CannotMix:
    """Shared models of a family whose models are not vectors."""
    return CannotMix(
        "shared models must be vectors that can be averaged, such as those of Linear or Network. "
        f"Got {learner!r}: compare it with local(...), pooled(...) or personalize(...)."
    )


def refuse_no_jobs(n_jobs: int | None) -> None:
    """Stop where nobody would compute, or more processes would be started than a machine bears."""
    if n_jobs is not None and (n_jobs == 0 or n_jobs > _MOST_JOBS):
        raise InputError(
            f"n_jobs must be a number of processes or threads of at most {_MOST_JOBS:,}, or -1 for"
            f" all cores. Got {n_jobs}."
        )
