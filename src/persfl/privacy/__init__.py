"""Differential privacy of a device's rows: what noise promises, and what is left to be told.

The unit is one row of the device, added or removed; the adversary is everybody else together, over
all runs, for ever. docs/privacy.md says what that means and what it does not.
"""

from persfl.privacy.accountant import PLANNED, Accountant, PrivacyBudget, answer_cost
from persfl.privacy.gaussian import (
    delta_of,
    epsilon_of,
    mu_of,
    multiplier,
    true_positives,
)

__all__ = [
    "PLANNED",
    "Accountant",
    "PrivacyBudget",
    "answer_cost",
    "delta_of",
    "epsilon_of",
    "mu_of",
    "multiplier",
    "true_positives",
]
