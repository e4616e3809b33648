"""What a fit is asked beside its rows, its model family and its method."""

from __future__ import annotations

from dataclasses import dataclass

from persfl.checks import one_of, real, whole
from persfl.errors import InputError
from persfl.methods import Blend, Clustered, FineTuned, Method, Own, Pooled, cannot_run
from persfl.types import Array, Learner
from persfl.units import KINDS

# methods whose models are made on this processor, without a fleet that takes steps
_ON_THIS_PROCESSOR = (Blend, Own, Pooled, FineTuned, Clustered)


@dataclass(frozen=True, eq=False)
class FitSettings:
    """The settings that are no method's; `persfl.PersonalizedRegressor` says what each means."""

    units: str = "auto"
    public: Array | int | None = None
    """Points in the table's own units, or how many to make up."""
    holdout: float = 0.25
    trials: int | str = "auto"
    fallback: bool = False
    unseen: str = "pooled"
    window: int | None = None
    ordered: bool = False
    compute: str | None = None
    n_jobs: int | None = 1
    seed: int = 0

    def check(self, method: Method, learner: Learner) -> None:
        """Stop where a setting makes no sense, for this method and these models."""
        one_of("units", self.units, ["auto", *KINDS])
        one_of("unseen", self.unseen, ["pooled", "error"])
        if real("holdout", self.holdout, least=0.0) >= 1:
            raise InputError(f"holdout must be a share below 1. Got {self.holdout}.")
        if self.window is not None:
            whole("window", self.window, least=1)
        trouble = cannot_run(method, learner)
        if trouble:
            raise InputError(trouble)
        usual = method.needs().units
        if self.units not in ("auto", *usual):
            raise InputError(
                f"{method.name} goes by {' or '.join(usual)} units. Got units={self.units!r}:"
                " leave it out, or take another method such as method='paper'."
            )
        if self.compute is not None and isinstance(method, _ON_THIS_PROCESSOR):
            raise InputError(
                f"compute is for methods that take steps with a fleet, such as method='paper';"
                f" {method.name} computes on this processor. Leave it out."
            )
