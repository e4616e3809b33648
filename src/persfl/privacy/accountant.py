"""How much of an owner's budget is spent, and what a planned question will cost.

The budget is for everything that ever leaves, to whoever asked: all of them may talk to each other.
It is spent in squares (see `persfl.privacy.gaussian`): an answer with noise multiplier z costs
1 / z^2, and the budget is the square of the most that (epsilon, delta) allows.

>>> budget = PrivacyBudget(epsilon=3.0, delta=1e-5)
>>> z = budget.multiplier(answers=20)
>>> account = Accountant(budget)
>>> for _ in range(20):
...     account = account.after(answer_cost(z))
>>> round(account.epsilon, 6), account.fits(answer_cost(z)), account.answers(z)
(3.0, False, 0)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from persfl.checks import real
from persfl.privacy.gaussian import epsilon_of, mu_of

_ROUNDING = 1e-12  # by which noise is larger: sums of many costs are rounded
UNITS = 0.1  # of the budget for finding out units, where declared ranges do not do
PLANNED = 20  # answers that a device plans for, where nobody says how many


def answer_cost(multiplier: float) -> float:
    """What an answer with this noise costs."""
    return 1.0 / multiplier**2


@dataclass(frozen=True, kw_only=True)
class PrivacyBudget:
    """What an owner allows in all: one row more or less changes the chance of whatever anybody
    sees by a factor of at most exp(epsilon), but for a chance of delta.
    """

    epsilon: float
    delta: float = 1e-5

    def __post_init__(self) -> None:
        real("epsilon", self.epsilon, above=0)
        real("delta", self.delta, above=0, most=0.5)

    @property
    def whole(self) -> float:
        """All that can be spent."""
        return mu_of(self.epsilon, self.delta) ** 2

    def multiplier(self, answers: int = 1, share: float = 1.0) -> float:
        """The noise of each of so many answers that spend this share of the budget together."""
        return math.sqrt(answers / (self.whole * share)) * (1.0 + _ROUNDING)


@dataclass(frozen=True)
class Accountant:
    """A budget and what of it is spent; a value that nobody changes."""

    budget: PrivacyBudget
    spent: float = 0.0

    @property
    def left(self) -> float:
        """What can still be spent."""
        return max(self.budget.whole - self.spent, 0.0)

    @property
    def epsilon(self) -> float:
        """What has been promised away so far, at the budget's delta."""
        return epsilon_of(math.sqrt(self.spent), self.budget.delta)

    def fits(self, cost: float) -> bool:
        """Whether so much more can be spent."""
        return self.spent + cost <= self.budget.whole

    def after(self, cost: float) -> Accountant:
        """With so much more spent."""
        return replace(self, spent=self.spent + cost)

    def answers(self, multiplier: float) -> int:
        """How many more answers with this noise fit."""
        return int(self.left * multiplier**2)
