"""What a fit is asked, beside its rows and its model family."""

from __future__ import annotations

from dataclasses import dataclass

from persfl.checks import one_of, real, whole
from persfl.errors import InputError
from persfl.fitting.method_choice import METHODS, loop_settings
from persfl.training import peers_of
from persfl.types import Adopter, Array
from persfl.units import KINDS


@dataclass(frozen=True, eq=False)
class FitSettings:
    """The settings of a fit; `persfl.PersonalizedRegressor` says what each means."""

    method: str = "auto"
    peers: int | str = "auto"
    rounds: int | str = "auto"
    step_size: float | str = "auto"
    adopter: Adopter | None = None
    units: str = "auto"
    public: Array | int | None = None
    """Points in the table's own units, or how many to make up."""
    holdout: float = 0.25
    trials: int | str = "auto"
    fallback: bool = False
    unseen: str = "pooled"
    window: int | None = None
    online_rounds: int = 10
    compute: str | None = None
    budget: int = 640
    ordered: bool = False
    n_jobs: int | None = 1
    seed: int = 0

    def check(self, devices: int) -> None:
        """Stop where a setting makes no sense, for so many devices."""
        if self.rounds != "auto":
            whole("rounds", self.rounds, least=1)
        one_of("units", self.units, ["auto", *KINDS])
        one_of("unseen", self.unseen, ["pooled", "error"])
        one_of("method", self.method, METHODS)
        if self.method not in ("auto", "paper") and self.adopter is not None:
            raise InputError(
                f"adopter belongs to method='paper'; method={self.method!r} brings its own. Leave"
                " one of them out."
            )
        if self.method in ("auto", "blend"):
            whole("budget", self.budget, least=1)
        foreign = loop_settings(self) if self.method == "blend" else []
        if foreign:
            raise InputError(
                f"{foreign[0]} belongs to method='paper' and 'kin'; method='blend' goes by budget."
                " Leave it out."
            )
        if real("holdout", self.holdout, least=0.0) >= 1:
            raise InputError(f"holdout must be a share below 1. Got {self.holdout}.")
        if self.window is not None:
            whole("window", self.window, least=1)
        if devices > 1:
            peers_of(self.peers, devices)
        if self.adopter is not None and (
            isinstance(self.adopter, type) or not callable(self.adopter)
        ):
            raise InputError(
                f"adopter must be a part such as TopK(4), or a function. Got {self.adopter!r}."
            )
