"""What a private run spends, device by device: shares of the budget, and noise for each of them.

In a simulation noise comes from the run's seed, so that results can be had again; it is drawn apart
for every device and every purpose.
"""

from __future__ import annotations

from dataclasses import dataclass

from persfl.privacy.accountant import UNITS, PrivacyBudget
from persfl.privacy.secure_noise import SeededNoise
from persfl.seeds import stream


@dataclass(frozen=True)
class RunBudget:
    """A device's budget in one simulated run."""

    budget: PrivacyBudget
    seed: int

    def noise(self, answers: int = 1) -> float:
        """The noise multiplier of each of so many answers that models are learned from."""
        return self.budget.multiplier(answers, 1.0 - UNITS)

    def noise_of_units(self, looks: int) -> float:
        """The noise multiplier of each of so many looks at where values lie."""
        return self.budget.multiplier(looks, UNITS)

    def source(self, device: int, *purpose: str | int) -> SeededNoise:
        """Where a device's noise comes from."""
        return SeededNoise(stream(self.seed, "private", *purpose, device))
