"""Who is told what happens in a fit: after every round, and at its end.

Numbers are of the whole fleet, never one per device: a tracker with a million tags is of no use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from persfl.errors import InputError

if TYPE_CHECKING:
    from persfl.fitting.fitted import Fitted
    from persfl.training.state import Keep, Plan, State
    from persfl.types import Round


class Callback:
    """What a tracker is told; a method that is left as it is does nothing.

    >>> class Losses(Callback):
    ...     def on_round(self, round_, stage):
    ...         print(stage, round_.r, float(round_.loss.mean()) > 0)
    >>> from persfl import PersonalizedRegressor
    >>> from persfl.methods import Paper
    >>> X, y = np.arange(8.0)[:, None], np.arange(8.0) + 1
    >>> model = PersonalizedRegressor(method=Paper(rounds=2), holdout=0)
    >>> _ = model.fit(X, y, devices=list("aaaabbbb"), callbacks=[Losses()])
    final 0 True
    final 1 True
    """

    def on_stage(self, stage: str, rounds: int) -> None:
        """When a stage begins, or begins anew with shorter steps: so many rounds are to come."""

    def on_round(self, round_: Round, stage: str) -> None:
        """After every round of a stage: "trial-0", "trial-1", ..., "final"."""

    def on_fit(self, fitted: Fitted) -> None:
        """When the fit is done."""


Listener = Callback | Callable[["Round"], object]


class Told:
    """A keeper of runs that also tells callbacks; a plain function is told every round."""

    def __init__(self, keep: Keep, listeners: Sequence[Listener]) -> None:
        for one in listeners:
            if isinstance(one, type) or not (
                isinstance(one, Callback) or callable(one)
            ):
                raise InputError(
                    "callbacks must be a list of Callback objects, or of functions of a Round. Got"
                    f" {one!r}."
                )
        self.keep = keep
        self.listeners = listeners
        self._stage = ""

    def last(self, stage: str) -> State | None:
        """The state to go on from."""
        return self.keep.last(stage)

    def after(self, stage: str, plan: Plan, state: State, round_: Round | None) -> None:
        """Keep it first: who listens may fail."""
        self.keep.after(stage, plan, state, round_)
        if round_ is None or stage != self._stage:
            self._begin(stage, plan.rounds)
        if round_ is None:
            return
        for one in self.listeners:
            if isinstance(one, Callback):
                one.on_round(round_, stage)
            else:
                one(round_)

    def _begin(self, stage: str, rounds: int) -> None:
        self._stage = stage
        for one in self.listeners:
            if isinstance(one, Callback):
                one.on_stage(stage, rounds)

    def done(self, fitted: Fitted) -> None:
        """The fit is over."""
        for one in self.listeners:
            if isinstance(one, Callback):
                one.on_fit(fitted)


def round_metrics(round_: Round) -> dict[str, float]:
    """A round in a few numbers: losses on own rows over devices, and how many adopted."""
    loss = round_.loss[np.isfinite(round_.loss)]
    choice = round_.choice
    moved = float(np.mean(np.asarray(choice.stay) < 1.0)) if len(choice.stay) else 0.0
    found = {"adopted": moved}
    if len(loss):
        low, middle, high = np.quantile(loss, [0.1, 0.5, 0.9])
        found |= {
            "loss": float(middle),
            "loss_p10": float(low),
            "loss_p90": float(high),
        }
    return found


def fleet_metrics(fitted: Fitted) -> dict[str, float]:
    """What came out, in a few numbers: errors on rows held back, and the gain over own rows."""
    found = {"devices": float(len(fitted.devices)), "rows": float(fitted.rows.sum())}
    worth = fitted.worth
    if worth is None:
        return found
    verdict = worth.fleet()
    found |= {"gain": verdict.gain, "gain_low": verdict.low, "gain_high": verdict.high}
    for arm in worth.summary():
        found[f"error_{arm['key']}"] = arm["error"]
    return {name: value for name, value in found.items() if np.isfinite(value)}
